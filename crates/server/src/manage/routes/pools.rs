//! The routes of pools, their disks and their logical disks.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header::ETAG;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use flashwise_storage::disk::inventory::DiskInfo;
use flashwise_storage::pool::status::{LogicalDiskStatus, MapRun, PoolStatus};
use flashwise_storage::pool::{DiskAdded, DiskGivenUp, LogicalDiskChange, NewLogical, PoolChange};
use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{
    Answer, ChangeRequest, Deleting, Deletion, ErrorBody, IfMatch, Routed, Server, bad, blocking, check_confirmed,
    grouped, json, named,
};
use crate::manage::plan::{self, DryRun, Plan};
use crate::manage::{DiskWiped, ManageError, Managed, NewPool, Pools, tag};

type Names<T> = Result<Path<T>, PathRejection>;

fn pools(server: &dyn Managed) -> Result<&dyn Pools, ManageError> {
    server.pools().ok_or_else(|| ManageError::NotFound("this server has no pools".to_owned()))
}

fn pool_status(pools: &dyn Pools, name: &str) -> Result<PoolStatus, ManageError> {
    let status = pools.status();
    let there: Vec<String> = status.iter().map(|pool| pool.name.clone()).collect();
    status.into_iter().find(|pool| pool.name == name).ok_or_else(|| ManageError::no_pool(name, &there))
}

fn logical_status(pool: PoolStatus, name: &str) -> Result<LogicalDiskStatus, ManageError> {
    let found = pool.logical_disks.into_iter().find(|disk| disk.name == name);
    found.ok_or_else(|| ManageError::NotFound(format!("pool '{}': no logical disk '{name}'", pool.name)))
}

/// The machine's disks, and the possible uses of each.
#[utoipa::path(
    get,
    path = "/v1/disks",
    responses(
        (status = 200, description = "Success", body = Vec<DiskInfo>),
        (status = 500, description = "The system does not list its devices", body = ErrorBody),
    )
)]
pub(super) async fn machine_disks(State(server): Server) -> Answer<Json<Vec<DiskInfo>>> {
    blocking(server, |server| pools(server)?.machine_disks()).await.map(Json)
}

/// All pools with their disks and logical disks.
#[utoipa::path(
    get,
    path = "/v1/pools",
    responses((status = 200, description = "Success", body = Vec<PoolStatus>))
)]
pub(super) async fn all_pools(State(server): Server) -> Answer<Json<Vec<PoolStatus>>> {
    blocking(server, |server| Ok(server.pools().map(|pools| pools.status()).unwrap_or_default())).await.map(Json)
}

/// Makes a pool, which is served at once, and again after a restart.
#[utoipa::path(
    post,
    path = "/v1/pools",
    params(DryRun, IfMatch),
    request_body = NewPool,
    responses(
        (status = 201, description = "It is served", body = PoolStatus),
        (status = 409, description = "A disk is not free, or the name is taken", body = ErrorBody),
        (status = 412, description = "A disk to wipe was replaced", body = ErrorBody),
        (status = 500, description = "It failed, and the disks are blank", body = ErrorBody),
    )
)]
pub(super) async fn make_pool(
    ChangeRequest { server, live, changing, dry, wanted }: ChangeRequest,
    body: Bytes,
) -> Answer<Response> {
    let new: NewPool = json(&body)?;
    let work = move |server: &dyn Managed| {
        let _one = changing.lock();
        let pools = pools(server)?;
        if dry {
            return pools.plan_pool(&new).map(|plan| planned(None, plan));
        }
        check_wipes(wanted.as_deref(), None, || pools.plan_pool(&new))?;
        pools.make_pool(&new)?;
        live.record(Some(&new.name), format!("The pool was created from {}", new.disks.join(", ")));
        pool_status(pools, &new.name).map(Changed::Made)
    };
    answer(blocking(server, work).await?, StatusCode::CREATED, whole)
}

/// One pool.
#[utoipa::path(
    get,
    path = "/v1/pools/{name}",
    responses((status = 200, description = "Success", body = PoolStatus))
)]
pub(super) async fn one_pool(State(server): Server, name: Names<String>) -> Answer<Response> {
    let name = named(name)?;
    let pool = blocking(server, move |server| pool_status(pools(server)?, &name)).await?;
    Ok(([(ETAG, tag::of_pool(&pool))], Json(pool)).into_response())
}

/// Deletes a pool that a running server made and that has no logical disks: its disks and its flash are blank then. One
/// that is not served is forgotten, and its disks are left as they are.
#[utoipa::path(
    delete,
    path = "/v1/pools/{name}",
    params(Deletion, IfMatch),
    responses(
        (status = 204, description = "It is gone"),
        (status = 400, description = "The name is not confirmed", body = ErrorBody),
        (status = 409, description = "It has logical disks, or comes from the configuration", body = ErrorBody),
        (status = 500, description = "It is not served any more, but a disk could not be cleared", body = ErrorBody),
    )
)]
pub(super) async fn delete_pool(deleting: Deleting, name: Names<String>) -> Answer<Response> {
    let name = named(name)?;
    let ChangeRequest { server, live, changing, dry, wanted } = deleting.confirmed(&name, "this deletes a pool")?;
    let work = move |server: &dyn Managed| {
        let _one = changing.lock();
        let pools = pools(server)?;
        // One that is not served has nothing that could have been seen.
        if let Ok(status) = pool_status(pools, &name) {
            tag::check(wanted.as_deref(), &tag::of_pool(&status))?;
        }
        if dry {
            return Ok(Json(pools.plan_end(&name)?).into_response());
        }
        pools.end(&name)?;
        live.record(Some(&name), "The pool was deleted");
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    blocking(server, work).await
}

/// The result of a change: for a dry run its plan and tag, otherwise the pool.
enum Changed {
    Planned(Plan, Option<String>),
    Made(PoolStatus),
}

/// Returns the plan of a dry run. `of_thing` is the tag of the changed object.
fn planned(of_thing: Option<&str>, plan: Plan) -> Changed {
    let tag = tag::of_wipes(of_thing, &plan);
    Changed::Planned(plan, tag)
}

/// Refuses a request with an outdated tag: the object has changed, or other disks would be wiped.
fn check_wipes(
    wanted: Option<&[String]>,
    of_thing: Option<&str>,
    plan: impl FnOnce() -> Result<Plan, ManageError>,
) -> Result<(), ManageError> {
    let is_met = |tag: &str| tag::check(wanted, tag).is_ok();
    if wanted.is_none()
        || of_thing.is_some_and(is_met)
        || tag::of_wipes(of_thing, &plan()?).as_deref().is_some_and(is_met)
    {
        return Ok(());
    }
    Err(ManageError::Changed)
}

fn plan_response(plan: Plan, tag: Option<String>) -> Response {
    let mut response = Json(plan).into_response();
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Changes a pool, or describes the effect, if the pool still has the tag of the request.
async fn change_pool(
    ChangeRequest { server, live, changing, dry, wanted }: ChangeRequest,
    (name, change): (String, PoolChange),
) -> Answer<Changed> {
    let work = move |server: &dyn Managed| {
        let _one = changing.lock();
        let pools = pools(server)?;
        let pool = pool_status(pools, &name)?;
        let tag = tag::of_pool(&pool);
        check_wipes(wanted.as_deref(), Some(&tag), || pools.plan(&name, &change))?;
        if dry {
            return pools.plan(&name, &change).map(|plan| planned(Some(&tag), plan));
        }
        pools.make(&name, &change)?;
        live.record(Some(&name), change.description());
        pool_status(pools, &name).map(Changed::Made)
    };
    blocking(server, work).await
}

/// Returns the answer to a change: the plan, or the part of the pool that `shown` selects, with the pool's tag.
fn answer<T: Serialize>(
    changed: Changed,
    status: StatusCode,
    shown: impl FnOnce(PoolStatus) -> Answer<T>,
) -> Answer<Response> {
    Ok(match changed {
        Changed::Planned(plan, tag) => plan_response(plan, tag),
        Changed::Made(pool) => (status, [(ETAG, tag::of_pool(&pool))], Json(shown(pool)?)).into_response(),
    })
}

fn whole(pool: PoolStatus) -> Answer<PoolStatus> {
    Ok(pool)
}

/// The logical disk of this name.
fn one(name: &str) -> impl FnOnce(PoolStatus) -> Answer<LogicalDiskStatus> {
    move |pool| Ok(logical_status(pool, name)?)
}

/// Wipes an unused disk; its data is lost.
#[utoipa::path(
    post,
    path = "/v1/disks/wipe",
    params(DryRun, IfMatch),
    request_body = DiskWiped,
    responses(
        (status = 204, description = "It is blank"),
        (status = 400, description = "The path is not confirmed", body = ErrorBody),
        (status = 409, description = "The disk is in use, or blank already", body = ErrorBody),
        (status = 412, description = "The disk was replaced", body = ErrorBody),
    )
)]
pub(super) async fn wipe_disk(
    ChangeRequest { server, live, changing, dry, wanted }: ChangeRequest,
    body: Bytes,
) -> Answer<Response> {
    let DiskWiped { path, confirm } = json(&body)?;
    check_confirmed(dry, confirm.as_deref(), &path, "a wipe loses the data on a disk")?;
    let work = move |server: &dyn Managed| {
        let _one = changing.lock();
        let pools = pools(server)?;
        let plan = || Ok(plan::of_wipe(&pools.wipeable(&path)?));
        if dry {
            let plan = plan()?;
            let tag = tag::of_wipes(None, &plan);
            return Ok(plan_response(plan, tag));
        }
        check_wipes(wanted.as_deref(), None, plan)?;
        pools.wipe(&path)?;
        live.record(None, format!("The disk {path} was wiped"));
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    blocking(server, work).await
}

/// Adds a disk to a pool.
#[utoipa::path(
    post,
    path = "/v1/pools/{name}/disks",
    params(DryRun, IfMatch),
    request_body = DiskAdded,
    responses(
        (status = 201, description = "It is a part of the pool", body = PoolStatus),
        (status = 409, description = "The disk is not free, or it cannot be done now", body = ErrorBody),
    )
)]
pub(super) async fn add_disk(asked: ChangeRequest, name: Names<String>, body: Bytes) -> Answer<Response> {
    let change = (named(name)?, PoolChange::AddDisk(json(&body)?));
    answer(change_pool(asked, change).await?, StatusCode::CREATED, whole)
}

/// Starts to empty a disk of a pool. Once its chunks are on other disks, it is removed.
#[utoipa::path(
    delete,
    path = "/v1/pools/{name}/disks/{number}",
    params(DryRun, IfMatch),
    responses(
        (status = 202, description = "It began", body = PoolStatus),
        (status = 409, description = "It cannot be done now", body = ErrorBody),
    )
)]
pub(super) async fn remove_disk(asked: ChangeRequest, of: Names<(String, u32)>) -> Answer<Response> {
    let (name, number) = named(of)?;
    let change = (name, PoolChange::RemoveDisk(number));
    answer(change_pool(asked, change).await?, StatusCode::ACCEPTED, whole)
}

/// Stops emptying a disk; chunks that have moved stay there.
#[utoipa::path(
    post,
    path = "/v1/pools/{name}/disks/{number}/keep",
    params(DryRun, IfMatch),
    responses(
        (status = 200, description = "It stays; with `dry-run=true`: the plan", body = PoolStatus),
        (status = 409, description = "It is not being emptied", body = ErrorBody),
    )
)]
pub(super) async fn keep_disk(asked: ChangeRequest, of: Names<(String, u32)>) -> Answer<Response> {
    let (name, number) = named(of)?;
    answer(change_pool(asked, (name, PoolChange::KeepDisk(number))).await?, StatusCode::OK, whole)
}

/// Removes a missing disk for good. Its data is lost: reads of it fail until new data is written there.
#[utoipa::path(
    post,
    path = "/v1/pools/{name}/disks/{number}/give-up",
    params(DryRun, IfMatch),
    request_body = DiskGivenUp,
    responses(
        (status = 200, description = "The pool continues without it; with `dry-run=true`: the plan", body = PoolStatus),
        (status = 409, description = "The disk is present, or the path is wrong", body = ErrorBody),
    )
)]
pub(super) async fn give_up_disk(asked: ChangeRequest, of: Names<(String, u32)>, body: Bytes) -> Answer<Response> {
    let (name, number) = named(of)?;
    let change = (name, PoolChange::GiveUpDisk(number, json(&body)?));
    answer(change_pool(asked, change).await?, StatusCode::OK, whole)
}

/// Makes a logical disk, which clients can open at once.
#[utoipa::path(
    post,
    path = "/v1/pools/{name}/logical-disks",
    params(DryRun, IfMatch),
    request_body = NewLogical,
    responses(
        (status = 201, description = "It is there", body = LogicalDiskStatus),
        (status = 409, description = "The name is taken, or there is no space", body = ErrorBody),
    )
)]
pub(super) async fn create_logical_disk(asked: ChangeRequest, name: Names<String>, body: Bytes) -> Answer<Response> {
    let new: NewLogical = json(&body)?;
    let made = new.name.clone();
    let change = (named(name)?, PoolChange::Create(new));
    answer(change_pool(asked, change).await?, StatusCode::CREATED, one(&made))
}

/// Makes a logical disk larger, has it cached or not, changes its mode, or keeps RAM for it.
#[utoipa::path(
    patch,
    path = "/v1/pools/{name}/logical-disks/{disk}",
    params(DryRun, IfMatch),
    request_body = LogicalDiskChange,
    responses(
        (status = 200, description = "Done; with `dry-run=true`: the plan", body = LogicalDiskStatus),
        (status = 409, description = "It cannot be done now", body = ErrorBody),
    )
)]
pub(super) async fn change_logical_disk(
    asked: ChangeRequest,
    of: Names<(String, String)>,
    body: Bytes,
) -> Answer<Response> {
    let (pool, name) = named(of)?;
    let change: LogicalDiskChange = json(&body)?;
    if change.is_empty() {
        return Err(bad("nothing to change, expected size_bytes, cached, mode or pinned_ram_bytes".to_owned()));
    }
    let change = (pool, PoolChange::Alter(name.clone(), change));
    answer(change_pool(asked, change).await?, StatusCode::OK, one(&name))
}

/// Deletes a logical disk that no client has open; its data is lost.
#[utoipa::path(
    delete,
    path = "/v1/pools/{name}/logical-disks/{disk}",
    params(Deletion, IfMatch),
    responses(
        (status = 204, description = "It is gone"),
        (status = 400, description = "The name is not confirmed", body = ErrorBody),
        (status = 409, description = "It is in use", body = ErrorBody),
    )
)]
pub(super) async fn delete_logical_disk(deleting: Deleting, of: Names<(String, String)>) -> Answer<Response> {
    let (pool, name) = named(of)?;
    let asked = deleting.confirmed(&name, "a deletion loses the data of a logical disk")?;
    Ok(match change_pool(asked, (pool, PoolChange::Delete(name))).await? {
        Changed::Planned(plan, tag) => plan_response(plan, tag),
        Changed::Made(_) => StatusCode::NO_CONTENT.into_response(),
    })
}

/// Where the chunks of a logical disk are.
#[utoipa::path(
    get,
    path = "/v1/pools/{name}/logical-disks/{disk}/map",
    responses((status = 200, description = "Success", body = Vec<MapRun>))
)]
pub(super) async fn map_of_logical_disk(
    State(server): Server,
    of: Names<(String, String)>,
) -> Answer<Json<Vec<MapRun>>> {
    let (pool, name) = named(of)?;
    blocking(server, move |server| pools(server)?.map(&pool, &name)).await.map(Json)
}

pub(super) fn router() -> OpenApiRouter<Routed> {
    let router = OpenApiRouter::default()
        .routes(routes!(machine_disks))
        .routes(routes!(wipe_disk))
        .routes(routes!(all_pools, make_pool))
        .routes(routes!(one_pool, delete_pool))
        .routes(routes!(add_disk))
        .routes(routes!(remove_disk))
        .routes(routes!(keep_disk))
        .routes(routes!(give_up_disk))
        .routes(routes!(create_logical_disk))
        .routes(routes!(change_logical_disk, delete_logical_disk))
        .routes(routes!(map_of_logical_disk));
    grouped("pools", router)
}
