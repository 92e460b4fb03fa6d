//! The description of the routes in OpenAPI 3.1.

use axum::http::Method;
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;

use super::{alerts, described, following};
use crate::manage::plan::Plan;
use crate::manage::{guard, history};

#[derive(OpenApi)]
#[openapi(
    info(title = "flashwise", description = "Manages a running flashwise server.", license(name = "Apache-2.0 OR MIT")),
    // utoipa does not collect types that only parameters or common answers name.
    components(schemas(history::Range, history::Severity, alerts::Format, Plan)),
    modifiers(&BearerToken),
    security((), ("token" = []))
)]
pub(super) struct Description;

struct BearerToken;

impl utoipa::Modify for BearerToken {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = openapi.components.get_or_insert_with(Default::default);
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// The operations of a description, with their paths and methods.
fn operations(openapi: &mut utoipa::openapi::OpenApi) -> impl Iterator<Item = (&String, Method, &mut Operation)> {
    openapi.paths.paths.iter_mut().flat_map(|(path, item)| {
        let of = [
            (Method::GET, &mut item.get),
            (Method::PUT, &mut item.put),
            (Method::POST, &mut item.post),
            (Method::PATCH, &mut item.patch),
            (Method::DELETE, &mut item.delete),
        ];
        of.into_iter().filter_map(move |(method, operation)| Some((path, method, operation.as_mut()?)))
    })
}

/// Assigns the operations of a router to this heading.
pub(super) fn grouped<S: Clone + Send + Sync + 'static>(
    heading: &str,
    mut router: OpenApiRouter<S>,
) -> OpenApiRouter<S> {
    for (_, _, operation) in operations(router.get_openapi_mut()) {
        operation.tags = Some(vec![heading.to_owned()]);
    }
    router
}

/// Returns the parameters in a path, each with the kind of thing that it names: `name` is a `pool` in `/pools/{name}`.
fn parameters_in(path: &str) -> Vec<(&str, String)> {
    let parts: Vec<&str> = path.split('/').collect();
    let thing = |part: &str| part.trim_end_matches('s').replace('-', " ");
    parts.windows(2).filter_map(|pair| Some((pair[1].strip_prefix('{')?.strip_suffix('}')?, thing(pair[0])))).collect()
}

/// Adds to each operation the parameters of its path, and the answers that follow from its parameters and the guard.
fn add_common(openapi: &mut utoipa::openapi::OpenApi) {
    for (path, method, operation) in operations(openapi) {
        let names = parameters_in(path);
        let parameters = operation.parameters.get_or_insert_default();
        let is = |parameter: &_, name: &str| matches!(parameter, RefOr::T(Parameter { name: of, .. }) if of == name);
        let has = |name: &str| parameters.iter().any(|parameter| is(parameter, name));
        let (is_dry, has_tag) = (has("dry-run"), has("If-Match"));
        let has_input = operation.request_body.is_some() || !parameters.is_empty();
        parameters.extend(names.iter().map(|(name, thing)| {
            let (kind, of) = if *name == "number" { (Type::Integer, "number of the ") } else { (Type::String, "") };
            let schema = ObjectBuilder::new().schema_type(kind);
            let parameter =
                ParameterBuilder::new().name(*name).parameter_in(ParameterIn::Path).required(Required::True);
            RefOr::T(parameter.description(Some(format!("The {of}{thing}"))).schema(Some(schema)).build())
        }));
        let thing = names.last().map_or("", |(_, thing)| thing);
        let answers = [
            ("200", is_dry, "With `dry-run=true`: the plan".to_owned()),
            ("400", has_input, "The request is invalid".to_owned()),
            ("401", !guard::is_open(&method, path), "A token is needed".to_owned()),
            ("403", true, "The request comes from a foreign page or host name, or its token is read-only".to_owned()),
            ("404", !names.is_empty(), format!("There is no such {thing}")),
            ("412", has_tag, "It was changed meanwhile".to_owned()),
            ("413", operation.request_body.is_some(), "The body is too long".to_owned()),
        ];
        for (status, _, description) in answers.into_iter().filter(|(_, may_be, _)| *may_be) {
            let schema = Ref::from_schema_name(if status == "200" { "Plan" } else { "ErrorBody" });
            let content = ContentBuilder::new().schema(Some(schema)).build();
            let answer = ResponseBuilder::new().description(description).content("application/json", content).build();
            operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(answer));
        }
    }
}

/// The description of the routes.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut openapi = described().into_openapi();
    openapi.merge(following::routes().into_openapi());
    add_common(&mut openapi);
    openapi
}
