//! The routes of pools, their disks and their logical disks.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use flashwise_engine::inventory::DiskInfo;
use flashwise_engine::pool::status::{LogicalDiskStatus, MapRun, PoolStatus};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use super::{Answer, ErrorBody, Routed, Server, bad, blocking, body, named};
use crate::manage::{DiskAdded, DiskGivenUp, LogicalDiskChange, ManageError, Managed, NewLogicalDisk, Pools};

type Names<T> = Result<Path<T>, PathRejection>;

async fn json<T: DeserializeOwned>(request: Request) -> Answer<T> {
    let body = body(request.into_body()).await?;
    serde_json::from_slice(&body).map_err(|error| bad(format!("the body is not what was expected: {error}")))
}

fn pools(server: &dyn Managed) -> Result<&dyn Pools, ManageError> {
    server.pools().ok_or_else(|| ManageError::NotFound("this server has no pools".to_owned()))
}

fn pool_status(pools: &dyn Pools, name: &str) -> Result<PoolStatus, ManageError> {
    let status = pools.status();
    let there = status.iter().map(|pool| pool.name.clone()).collect::<Vec<_>>().join(", ");
    let found = status.into_iter().find(|pool| pool.name == name);
    found.ok_or_else(|| ManageError::NotFound(format!("no pool '{name}', expected one of: {there}")))
}

fn logical_status(pools: &dyn Pools, pool: &str, name: &str) -> Result<LogicalDiskStatus, ManageError> {
    let disks = pool_status(pools, pool)?.logical_disks;
    let found = disks.into_iter().find(|disk| disk.name == name);
    found.ok_or_else(|| ManageError::NotFound(format!("pool '{pool}': no logical disk '{name}'")))
}

/// The machine's disks, and what each could be used for.
#[utoipa::path(
    get,
    path = "/v1/disks",
    responses(
        (status = 200, description = "What was asked for", body = Vec<DiskInfo>),
        (status = 500, description = "The machine does not tell", body = ErrorBody),
    )
)]
pub(super) async fn machine_disks(State(server): Server) -> Answer<Json<Vec<DiskInfo>>> {
    blocking(server, |server| pools(server)?.machine_disks()).await.map(Json)
}

/// All pools with their disks and logical disks.
#[utoipa::path(
    get,
    path = "/v1/pools",
    responses((status = 200, description = "What was asked for", body = Vec<PoolStatus>))
)]
pub(super) async fn all_pools(State(server): Server) -> Answer<Json<Vec<PoolStatus>>> {
    blocking(server, |server| Ok(server.pools().map(|pools| pools.status()).unwrap_or_default())).await.map(Json)
}

/// One pool.
#[utoipa::path(
    get,
    path = "/v1/pools/{name}",
    params(("name" = String, Path, description = "The pool")),
    responses(
        (status = 200, description = "What was asked for", body = PoolStatus),
        (status = 404, description = "There is no such pool", body = ErrorBody),
    )
)]
pub(super) async fn one_pool(State(server): Server, name: Names<String>) -> Answer<Json<PoolStatus>> {
    let name = named(name)?;
    blocking(server, move |server| pool_status(pools(server)?, &name)).await.map(Json)
}

/// Adds a disk to a pool.
#[utoipa::path(
    post,
    path = "/v1/pools/{name}/disks",
    params(("name" = String, Path, description = "The pool")),
    request_body = DiskAdded,
    responses(
        (status = 201, description = "It is a part of the pool", body = PoolStatus),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 404, description = "There is no such pool", body = ErrorBody),
        (status = 409, description = "The disk is not free, or it cannot be done now", body = ErrorBody),
    )
)]
pub(super) async fn add_disk(
    State(server): Server,
    name: Names<String>,
    request: Request,
) -> Answer<(StatusCode, Json<PoolStatus>)> {
    let name = named(name)?;
    let disk: DiskAdded = json(request).await?;
    let work = move |server: &dyn Managed| {
        let pools = pools(server)?;
        pools.add_disk(&name, &disk)?;
        pool_status(pools, &name)
    };
    blocking(server, work).await.map(|status| (StatusCode::CREATED, Json(status)))
}

/// Starts to empty a disk of a pool; once its chunks are on others, it is taken out.
#[utoipa::path(
    delete,
    path = "/v1/pools/{name}/disks/{number}",
    params(("name" = String, Path, description = "The pool"), ("number" = u32, Path, description = "The disk's number")),
    responses(
        (status = 202, description = "It began", body = PoolStatus),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 404, description = "There is no such pool", body = ErrorBody),
        (status = 409, description = "It cannot be done now", body = ErrorBody),
    )
)]
pub(super) async fn remove_disk(
    State(server): Server,
    of: Names<(String, u32)>,
) -> Answer<(StatusCode, Json<PoolStatus>)> {
    let (name, number) = named(of)?;
    let work = move |server: &dyn Managed| {
        let pools = pools(server)?;
        pools.remove_disk(&name, number)?;
        pool_status(pools, &name)
    };
    blocking(server, work).await.map(|status| (StatusCode::ACCEPTED, Json(status)))
}

/// Gives up a disk that is missing: what was there is lost, and answers with an error until it is written anew.
#[utoipa::path(
    post,
    path = "/v1/pools/{name}/disks/{number}/give-up",
    params(("name" = String, Path, description = "The pool"), ("number" = u32, Path, description = "The disk's number")),
    request_body = DiskGivenUp,
    responses(
        (status = 200, description = "The pool goes on without it", body = PoolStatus),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 404, description = "There is no such pool", body = ErrorBody),
        (status = 409, description = "The disk is there, or the path is another", body = ErrorBody),
    )
)]
pub(super) async fn give_up_disk(
    State(server): Server,
    of: Names<(String, u32)>,
    request: Request,
) -> Answer<Json<PoolStatus>> {
    let (name, number) = named(of)?;
    let disk: DiskGivenUp = json(request).await?;
    let work = move |server: &dyn Managed| {
        let pools = pools(server)?;
        pools.give_up_disk(&name, number, &disk)?;
        pool_status(pools, &name)
    };
    blocking(server, work).await.map(Json)
}

/// Makes a logical disk, which clients can open at once.
#[utoipa::path(
    post,
    path = "/v1/pools/{name}/logical-disks",
    params(("name" = String, Path, description = "The pool")),
    request_body = NewLogicalDisk,
    responses(
        (status = 201, description = "It is there", body = LogicalDiskStatus),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 404, description = "There is no such pool", body = ErrorBody),
        (status = 409, description = "The name is taken, or there is no space", body = ErrorBody),
    )
)]
pub(super) async fn create_logical_disk(
    State(server): Server,
    name: Names<String>,
    request: Request,
) -> Answer<(StatusCode, Json<LogicalDiskStatus>)> {
    let name = named(name)?;
    let new: NewLogicalDisk = json(request).await?;
    let work = move |server: &dyn Managed| {
        let pools = pools(server)?;
        pools.create(&name, &new)?;
        logical_status(pools, &name, &new.name)
    };
    blocking(server, work).await.map(|status| (StatusCode::CREATED, Json(status)))
}

/// Makes a logical disk larger, has it cached or not, or changes its mode.
#[utoipa::path(
    patch,
    path = "/v1/pools/{name}/logical-disks/{disk}",
    params(("name" = String, Path, description = "The pool"), ("disk" = String, Path, description = "The logical disk")),
    request_body = LogicalDiskChange,
    responses(
        (status = 200, description = "It is so", body = LogicalDiskStatus),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 404, description = "There is no such logical disk", body = ErrorBody),
        (status = 409, description = "It cannot be done now", body = ErrorBody),
    )
)]
pub(super) async fn change_logical_disk(
    State(server): Server,
    of: Names<(String, String)>,
    request: Request,
) -> Answer<Json<LogicalDiskStatus>> {
    let (pool, name) = named(of)?;
    let change: LogicalDiskChange = json(request).await?;
    if change.size_bytes.is_none() && change.cached.is_none() && change.mode.is_none() {
        return Err(bad("nothing to change, expected size_bytes, cached or mode".to_owned()));
    }
    let work = move |server: &dyn Managed| {
        let pools = pools(server)?;
        pools.change(&pool, &name, &change)?;
        logical_status(pools, &pool, &name)
    };
    blocking(server, work).await.map(Json)
}

/// Deletes a logical disk that no client has open; what it holds is lost.
#[utoipa::path(
    delete,
    path = "/v1/pools/{name}/logical-disks/{disk}",
    params(
        ("name" = String, Path, description = "The pool"),
        ("disk" = String, Path, description = "The logical disk"),
        ("confirm" = String, Query, description = "The logical disk's name once more, so that none is deleted by a slip")
    ),
    responses(
        (status = 204, description = "It is gone"),
        (status = 400, description = "The name is not confirmed", body = ErrorBody),
        (status = 404, description = "There is no such logical disk", body = ErrorBody),
        (status = 409, description = "It is in use", body = ErrorBody),
    )
)]
pub(super) async fn delete_logical_disk(
    State(server): Server,
    of: Names<(String, String)>,
    RawQuery(query): RawQuery,
) -> Answer<StatusCode> {
    let (pool, name) = named(of)?;
    let query = query.unwrap_or_default();
    let confirmed = query.split('&').find_map(|pair| pair.strip_prefix("confirm="));
    let confirmed = confirmed.map(|text| percent_decode_str(text).decode_utf8_lossy().into_owned());
    if confirmed.as_ref() != Some(&name) {
        return Err(bad(format!("what '{name}' holds is lost then; to delete it, give its name as confirm")));
    }
    let work = move |server: &dyn Managed| pools(server)?.delete(&pool, &name);
    blocking(server, work).await.map(|()| StatusCode::NO_CONTENT)
}

/// Where the chunks of a logical disk are.
#[utoipa::path(
    get,
    path = "/v1/pools/{name}/logical-disks/{disk}/map",
    params(("name" = String, Path, description = "The pool"), ("disk" = String, Path, description = "The logical disk")),
    responses(
        (status = 200, description = "What was asked for", body = Vec<MapRun>),
        (status = 404, description = "There is no such logical disk", body = ErrorBody),
    )
)]
pub(super) async fn map_of_logical_disk(
    State(server): Server,
    of: Names<(String, String)>,
) -> Answer<Json<Vec<MapRun>>> {
    let (pool, name) = named(of)?;
    blocking(server, move |server| pools(server)?.map(&pool, &name)).await.map(Json)
}

pub(super) fn router() -> Router<Routed> {
    Router::new()
        .route("/v1/disks", get(machine_disks))
        .route("/v1/pools", get(all_pools))
        .route("/v1/pools/{name}", get(one_pool))
        .route("/v1/pools/{name}/disks", post(add_disk))
        .route("/v1/pools/{name}/disks/{number}", axum::routing::delete(remove_disk))
        .route("/v1/pools/{name}/disks/{number}/give-up", post(give_up_disk))
        .route("/v1/pools/{name}/logical-disks", post(create_logical_disk))
        .route("/v1/pools/{name}/logical-disks/{disk}", patch(change_logical_disk).delete(delete_logical_disk))
        .route("/v1/pools/{name}/logical-disks/{disk}/map", get(map_of_logical_disk))
}
