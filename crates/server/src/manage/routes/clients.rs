//! The routes of clients and their access to exports.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, ChangeRequest, ErrorBody, IfMatch, Name, Routed, Server, blocking, grouped, json, named};
use crate::front::Assigned;
use crate::manage::clients::{Clients, IscsiStatus, NewAssignment, OpenClient};
use crate::manage::plan::DryRun;
use crate::manage::{ManageError, Managed, tag};

fn clients(server: &dyn Managed) -> Result<&dyn Clients, ManageError> {
    server.clients().ok_or_else(|| ManageError::NotFound("this server has no clients".to_owned()))
}

/// The clients that have an export open.
#[utoipa::path(
    get,
    path = "/v1/clients",
    responses((status = 200, description = "Success", body = Vec<OpenClient>))
)]
pub(super) async fn all_clients(State(server): Server) -> Answer<Json<Vec<OpenClient>>> {
    blocking(server, |server| Ok(server.clients().map(|clients| clients.clients()).unwrap_or_default())).await.map(Json)
}

/// Closes a client's connection, after the answers to its requests.
#[utoipa::path(
    delete,
    path = "/v1/clients/{number}",
    params(DryRun),
    responses((status = 204, description = "It has ended"))
)]
pub(super) async fn disconnect(
    ChangeRequest { server, live, dry, .. }: ChangeRequest,
    number: Result<axum::extract::Path<u64>, axum::extract::rejection::PathRejection>,
) -> Answer<Response> {
    let number = named(number)?;
    if dry {
        let plan = blocking(server, move |server| clients(server)?.plan_disconnect(number)).await?;
        return Ok(Json(plan).into_response());
    }
    let work = move |server: &dyn Managed| {
        let done = clients(server)?.disconnect(number)?;
        live.record(None, done);
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    blocking(server, work).await
}

/// Permissions to open exports, and the authentication of clients.
#[utoipa::path(
    get,
    path = "/v1/iscsi",
    responses(
        (status = 200, description = "Success", body = IscsiStatus),
        (status = 404, description = "The server has no clients", body = ErrorBody),
    )
)]
pub(super) async fn iscsi(State(server): Server) -> Answer<Response> {
    blocking(server, |server| clients(server).map(|clients| clients.iscsi())).await.map(tagged)
}

fn tagged(status: IscsiStatus) -> Response {
    ([(ETAG, tag::of_iscsi(&status))], Json(status)).into_response()
}

/// Assigns an export, or describes the effect, if all assignments still have the tag of the request.
async fn change(
    ChangeRequest { server, live, changing, dry, wanted }: ChangeRequest,
    (export, assigned): (String, Option<Vec<Assigned>>),
) -> Answer<Response> {
    let work = move |server: &dyn Managed| {
        let _one = changing.lock();
        let clients = clients(server)?;
        tag::check(wanted.as_deref(), &tag::of_iscsi(&clients.iscsi()))?;
        if dry {
            return Ok(Json(clients.plan_assign(&export, assigned.as_deref())?).into_response());
        }
        let done = clients.assign(&export, assigned)?;
        live.record(None, done);
        Ok(tagged(clients.iscsi()))
    };
    blocking(server, work).await
}

/// Assigns an export to clients: initiators for iSCSI, and names in certificates for NBD. Other initiators cannot open
/// it then. If a certificate is named, other NBD clients cannot either. Replaces the assignment of the configuration,
/// also after restarts.
#[utoipa::path(
    put,
    path = "/v1/iscsi/exports/{name}",
    params(DryRun, IfMatch),
    request_body = NewAssignment,
    responses(
        (status = 200, description = "Done; with `dry-run=true`: the plan", body = IscsiStatus),
        (status = 409, description = "Such clients cannot come: iSCSI is not served, or clients of NBD show no \
            certificates", body = ErrorBody),
    )
)]
pub(super) async fn assign(asked: ChangeRequest, name: Name, body: Bytes) -> Answer<Response> {
    let NewAssignment { assigned } = json(&body)?;
    change(asked, (named(name)?, Some(assigned))).await
}

/// Restores the assignment of the configuration.
#[utoipa::path(
    delete,
    path = "/v1/iscsi/exports/{name}",
    params(DryRun, IfMatch),
    responses(
        (status = 200, description = "Done; with `dry-run=true`: the plan", body = IscsiStatus),
        (status = 409, description = "Such clients cannot come: iSCSI is not served, or clients of NBD show no \
            certificates", body = ErrorBody),
    )
)]
pub(super) async fn assign_as_configured(asked: ChangeRequest, name: Name) -> Answer<Response> {
    change(asked, (named(name)?, None)).await
}

pub(super) fn router() -> OpenApiRouter<Routed> {
    let router = OpenApiRouter::default()
        .routes(routes!(all_clients))
        .routes(routes!(disconnect))
        .routes(routes!(iscsi))
        .routes(routes!(assign, assign_as_configured));
    grouped("clients", router)
}
