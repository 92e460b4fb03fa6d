//! The routes that make and remove volumes.

use axum::Json;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use flashwise_storage::status::VolumeStatus;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, ChangeRequest, Deleting, Deletion, ErrorBody, IfMatch, Name, Routed, blocking, json, named};
use crate::manage::plan::DryRun;
use crate::manage::{Managed, NewVolume, tag};

/// Makes a volume of a backend, which keeps its data. It is served at once, and again after a restart.
#[utoipa::path(
    post,
    path = "/v1/volumes",
    params(DryRun, IfMatch),
    request_body = NewVolume,
    responses(
        (status = 201, description = "It is served", body = VolumeStatus),
        (status = 409, description = "The backend or the flash is in use, or the name is taken", body = ErrorBody),
        (status = 500, description = "It failed", body = ErrorBody),
    )
)]
pub(super) async fn make_volume(
    ChangeRequest { server, live, changing, dry, .. }: ChangeRequest,
    body: Bytes,
) -> Answer<Response> {
    let new: NewVolume = json(&body)?;
    let work = move |server: &dyn Managed| {
        let _one = changing.lock();
        let plan = server.plan_volume(&new)?;
        if dry {
            return Ok(Json(plan).into_response());
        }
        server.make_volume(&new)?;
        live.record(Some(&new.name), format!("The volume was created with backend {}", new.backend));
        Ok((StatusCode::CREATED, Json(server.volume(&new.name)?)).into_response())
    };
    blocking(server, work).await
}

/// Removes a volume that a running server created. No client may have it open, and its backend must have all of its
/// data. The data stays, and the flash is wiped. A volume that is not being served is only forgotten: its devices are
/// unchanged.
#[utoipa::path(
    delete,
    path = "/v1/volumes/{name}",
    params(Deletion, IfMatch),
    responses(
        (status = 204, description = "It is gone"),
        (status = 400, description = "The name is not confirmed", body = ErrorBody),
        (status = 409, description = "It is in use, dirty, or of the configuration", body = ErrorBody),
        (status = 500, description = "It failed", body = ErrorBody),
    )
)]
pub(super) async fn delete_volume(deleting: Deleting, name: Name) -> Answer<Response> {
    let name = named(name)?;
    let ChangeRequest { server, live, changing, dry, wanted } = deleting.confirmed(&name, "this removes a volume")?;
    let work = move |server: &dyn Managed| {
        let _one = changing.lock();
        // One that is not served has no settings that could have been seen.
        if let Ok(settings) = server.settings(&name) {
            tag::check(wanted.as_deref(), &tag::of_settings(&settings))?;
        }
        let plan = server.plan_end_volume(&name)?;
        if dry {
            return Ok(Json(plan).into_response());
        }
        server.end_volume(&name)?;
        live.record(Some(&name), "The volume was removed");
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    blocking(server, work).await
}

pub(super) fn router() -> OpenApiRouter<Routed> {
    OpenApiRouter::default().routes(routes!(make_volume)).routes(routes!(delete_volume))
}
