//! A refusal of the server as words and an exit code.

use http::StatusCode;

use crate::{cli::Failure, wire::Problem};

/// What to tell about an answer that is not a success.
pub(super) fn failure(status: StatusCode, body: &[u8], url: &str) -> Failure {
    let (words, code) = match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => {
            let at = problem.path.map(|path| format!(" (at {path})")).unwrap_or_default();
            (format!("{}{at} [{}]", problem.detail, problem.code), Some(problem.code))
        }
        Err(_) => {
            let text = String::from_utf8_lossy(body);
            let line = text.lines().next().unwrap_or_default().chars().take(200).collect::<String>();
            (format!("{url} answered {status}: {line}").trim_end_matches([':', ' ']).to_owned(), None)
        }
    };
    let failure = match status {
        StatusCode::NOT_FOUND => Failure::not_found(words),
        StatusCode::CONFLICT => Failure::too_late(words),
        StatusCode::UNAUTHORIZED => {
            Failure::failed(format!("{words}. Name a token with --token, DULY_TOKEN or DULY_TOKEN_FILE"))
        }
        _ => Failure::failed(words),
    };
    failure.with_problem(status.as_u16(), code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> Failure {
        failure(StatusCode::from_u16(status).unwrap(), body.as_bytes(), "http://duly")
    }

    #[test]
    fn the_detail_and_the_code_of_a_problem_are_told() {
        let body = r#"{"type":"t","title":"T","status":409,"code":"too_late","detail":"a is delivered","state":"delivered"}"#;
        let failure = of(409, body);
        assert_eq!(failure.words, "a is delivered [too_late]");
        assert_eq!(failure.problem_code(), Some("too_late"));
    }

    #[test]
    fn each_kind_of_answer_has_its_exit_code() {
        for (status, code) in [(404, 3), (409, 4), (422, 1), (401, 1), (503, 1)] {
            assert_eq!(of(status, "").code(), code, "{status}");
        }
    }

    #[test]
    fn an_answer_of_somebody_else_is_shown_in_one_line() {
        let failure = of(502, "<html>\nbad gateway");
        assert_eq!(failure.words, "http://duly answered 502 Bad Gateway: <html>");
    }
}
