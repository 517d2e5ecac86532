//! The HTTP API: health, pairing, devices, audit.

use super::App;
use super::access::ApiError;
use super::listen::Ends;
use crate::clock::timestamp;
use crate::hub::Question;
use crate::ledger::{AuditFilter, Token};
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, Path, Query, Request, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use protocol::connection::PeerRole;
use protocol::error::ErrorCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long the body of a pairing request may take.
const PAIRING_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A name a person gave to a device.
const LONGEST_NAME: usize = 100;

/// Entries of the audit trail in one answer.
const MOST_AUDIT_ENTRIES: u32 = 1000;

type Answer<T> = Result<T, ApiError>;

fn bad_request(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidMessage, message)
}

/// Alive. Says nothing else: it is open to everyone.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Ready: the hub answers and the ledger can be read.
pub(super) async fn readyz(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer<&'static str> {
    app.door(&headers).await?;
    app.hub.ask(|reply| Question::FileTotals { reply }).await?;
    Ok("ready\n")
}

pub(super) async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer<String> {
    app.door(&headers).await?;
    Ok(app.metrics.text())
}

#[derive(Deserialize)]
pub(super) struct PairRequest {
    code: String,
    device_name: String,
}

/// Trades a one-time code for a token: as a cookie for a page, in the answer for a proxy.
pub(super) async fn pair(
    State(app): State<Arc<App>>,
    Extension(ends): Extension<Ends>,
    headers: HeaderMap,
    request: Request,
) -> Answer<Response> {
    // Anybody may knock here, so nobody may keep the door waiting.
    let body = timeout(PAIRING_BODY_TIMEOUT, Json::<PairRequest>::from_request(request, &())).await;
    let body = body.map_err(|_| bad_request("the request did not arrive in time".into()))?;
    let Json(PairRequest { code, device_name }) = body.map_err(|error| bad_request(error.body_text()))?;
    let device_name = device_name.trim().to_owned();
    if device_name.is_empty() || device_name.chars().count() > LONGEST_NAME {
        return Err(bad_request(format!("`device_name` must have 1 to {LONGEST_NAME} characters")));
    }
    let from = app.client_address(&headers, ends);
    let paired = app.hub.ask(|reply| Question::Pair { code, device_name, from, reply }).await??;
    let mut body = device(&paired.token);
    Ok(match paired.token.role {
        PeerRole::Browser => ([(SET_COOKIE, app.cookie_for(&paired.secret))], Json(body)).into_response(),
        PeerRole::Proxy => {
            body["token"] = paired.secret.into();
            Json(body).into_response()
        }
    })
}

/// Who this cookie or token is.
pub(super) async fn me(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer<Json<Value>> {
    let door = app.door(&headers).await?;
    Ok(Json(json!({"token_id": door.token_id, "role": door.role.as_str(), "device_name": door.label})))
}

/// Every device and proxy that can come in.
pub(super) async fn devices(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer<Json<Value>> {
    let door = app.door_for(PeerRole::Browser, &headers).await?;
    let tokens = app.hub.ask(|reply| Question::Devices { reply }).await?;
    let devices: Vec<Value> = tokens
        .iter()
        .filter(|token| token.revoked_at.is_none())
        .map(|token| {
            let mut device = device(token);
            device["is_this_device"] = (token.token_id == door.token_id).into();
            device
        })
        .collect();
    Ok(Json(json!({"devices": devices})))
}

fn device(token: &Token) -> Value {
    json!({
        "token_id": token.token_id,
        "role": token.role.as_str(),
        "device_name": token.label,
        "machine_id": token.machine_id,
        "created_at": timestamp(token.created_at),
        "last_used_at": token.last_used_at.map(timestamp),
    })
}

pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    Path(token_id): Path<String>,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    let by = app.door_for(PeerRole::Browser, &headers).await?;
    if app.hub.ask(|reply| Question::Revoke { token_id, by, reply }).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let message = "no such device, or it was revoked already";
    Err(ApiError::new(StatusCode::NOT_FOUND, ErrorCode::InvalidMessage, message))
}

#[derive(Deserialize)]
pub(super) struct AuditQuery {
    action: Option<String>,
    session_id: Option<String>,
    machine_id: Option<String>,
    token_id: Option<String>,
    before: Option<i64>,
    limit: Option<u32>,
}

/// The audit trail, newest first. The next page is asked for with `before`.
pub(super) async fn audit(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Answer<Json<Value>> {
    app.door_for(PeerRole::Browser, &headers).await?;
    let Query(query) = query.map_err(|error| bad_request(error.body_text()))?;
    let filter = AuditFilter {
        action: query.action,
        session_id: query.session_id,
        machine_id: query.machine_id,
        token_id: query.token_id,
        before: query.before,
        since: None,
        limit: query.limit.unwrap_or(100).min(MOST_AUDIT_ENTRIES),
    };
    let readers = app.readers.clone();
    let entries = tokio::task::spawn_blocking(move || readers.audit_entries(&filter)).await;
    match entries {
        Ok(Ok(entries)) => Ok(Json(json!({"entries": entries}))),
        Ok(Err(_)) | Err(_) => {
            let message = "the audit trail cannot be read now; try again later";
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::HistoryNotAvailable, message))
        }
    }
}
