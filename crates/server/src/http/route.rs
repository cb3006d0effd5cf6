//! The template of the route that a request is for: a label of metrics, which a path would leave without bound.

use std::sync::Arc;

/// The templates of all routes, such as `/v1/messages/{id}`.
#[derive(Debug)]
pub(super) struct RouteTemplates {
    /// Those with fewer parameters first, as the router prefers them.
    templates: Vec<Arc<str>>,
    none: Arc<str>,
}

impl RouteTemplates {
    pub(super) fn new(templates: impl IntoIterator<Item = String>) -> Self {
        let mut templates: Vec<Arc<str>> = templates.into_iter().map(Into::into).collect();
        templates.sort_by_key(|template| template.matches('{').count());
        Self { templates, none: Arc::default() }
    }

    /// The template of a path; empty if no route has it.
    pub(super) fn of(&self, path: &str) -> &Arc<str> {
        self.templates.iter().find(|template| fits(template, path)).unwrap_or(&self.none)
    }
}

fn fits(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some(parameter), Some(part)) if parameter.starts_with('{') => {
                if part.is_empty() {
                    return false;
                }
            }
            (Some(word), Some(part)) if word == part => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_template_of_its_route() {
        let all = ["/v1/messages/{id}", "/v1/messages", "/v1/messages/batch", "/v1/messages/{id}/fire", "/"];
        let routes = RouteTemplates::new(all.map(str::to_owned));
        for (path, template) in [
            ("/v1/messages", "/v1/messages"),
            ("/v1/messages/batch", "/v1/messages/batch"),
            ("/v1/messages/a%2Fb", "/v1/messages/{id}"),
            ("/v1/messages/batch/fire", "/v1/messages/{id}/fire"),
            ("/v1/messages/", ""),
            ("/v1/messages/a/b", ""),
            ("/", "/"),
            ("", ""),
        ] {
            assert_eq!(&**routes.of(path), template, "{path}");
        }
    }
}
