//! Secrets, which are never shown.

pub use duly_core::secret::Secret;
pub(super) use duly_core::secret::{MASK, is_secret_name, mask_url};

/// Text with every secret in it masked, as it is and as `Debug` would write it. Very short ones are left: they hide
/// nothing, and taking them out would make the text unreadable.
pub(super) fn without(secrets: &[String], text: &str) -> String {
    const LEN_MIN: usize = 4;
    let long = secrets.iter().filter(|secret| secret.len() >= LEN_MIN);
    long.fold(text.to_owned(), |text, secret| {
        let escaped = format!("{secret:?}");
        text.replace(escaped.trim_matches('"'), MASK).replace(secret, MASK)
    })
}

/// Where a URL leads, without its path: chat services put the secret there.
pub(super) fn only_host(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return MASK.into() };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}/{MASK}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_url_with_a_secret_path_only_the_host_is_shown() {
        assert_eq!(
            only_host("https://u:planted@hooks.example/T0/planted?x=planted"),
            "https://hooks.example/***"
        );
        assert_eq!(only_host("planted"), "***");
    }
}
