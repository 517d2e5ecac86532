//! The doors: which host names and origins are ours, and who a request speaks for.

use super::App;
use super::listen::Ends;
use crate::hub::{AccessError, Door, Question};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use protocol::connection::PeerRole;
use protocol::error::ErrorCode;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;

/// The page's cookie. HttpOnly: no script can read it.
pub(super) const COOKIE_NAME: &str = "remora_token";

/// An HTTP answer that says what is wrong and what to do.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: ErrorCode,
    message: String,
    retry_after_seconds: Option<i64>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: ErrorCode, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), retry_after_seconds: None }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = Json(json!({"error": {"code": self.code.as_str(), "message": self.message}}));
        let mut response = (self.status, body).into_response();
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> Self {
        let message = error.to_string();
        match error {
            AccessError::UnknownToken => Self::new(StatusCode::UNAUTHORIZED, ErrorCode::Unauthorized, message),
            AccessError::WrongCode => Self::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized, message),
            AccessError::LockedOut(seconds) => Self {
                retry_after_seconds: Some(seconds),
                ..Self::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::RateLimited, message)
            },
        }
    }
}

impl From<crate::hub::NoAnswer> for ApiError {
    fn from(error: crate::hub::NoAnswer) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, ErrorCode::StorageFull, error.to_string())
    }
}

/// Refuses what a foreign page or a rebound name could have caused, and guards every answer.
pub(super) async fn check_origin(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match app.check_names(request.headers(), request.extensions().get::<Ends>()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    const GUARDS: [(HeaderName, &str); 4] = [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in GUARDS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

impl App {
    fn check_names(&self, headers: &HeaderMap, ends: Option<&Ends>) -> Result<(), ApiError> {
        let forbidden = |message: &str| ApiError::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized, message);
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
        if !self.is_our_host(&host, ends) {
            return Err(forbidden("this host name is not the relay's: start it with --public-url, or use its address"));
        }
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        let same = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://")) == Some(&host);
        let public = self.public_url.as_ref().is_some_and(|url| url.to_string() == origin);
        if same || public { Ok(()) } else { Err(forbidden("requests from other sites are not answered")) }
    }

    /// The public name, the loopback names, or the very address the connection came in on. A name
    /// that was made to point here (DNS rebinding) is none of these.
    fn is_our_host(&self, host: &str, ends: Option<&Ends>) -> bool {
        if self.public_url.as_ref().is_some_and(|url| url.authority == host) {
            return true;
        }
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        match name.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || ends.is_some_and(|ends| ends.local.to_canonical() == address),
            Err(_) => name == "localhost",
        }
    }

    /// The address of whoever asks, behind a reverse proxy only if that one is trusted.
    pub(crate) fn client_address(&self, headers: &HeaderMap, ends: Ends) -> IpAddr {
        let direct = ends.peer.ip().to_canonical();
        if !self.trusted_proxy.contains(&direct) {
            return direct;
        }
        let forwarded = headers.get_all("x-forwarded-for").iter().next_back().and_then(|value| value.to_str().ok());
        // The last entry of the last line is the one our own proxy wrote; those before it anyone could have.
        forwarded.and_then(|list| list.rsplit(',').next()?.trim().parse().ok()).unwrap_or(direct)
    }

    /// Who a request speaks for: a bearer token, or the page's cookie.
    pub(crate) async fn door(&self, headers: &HeaderMap) -> Result<Door, ApiError> {
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let (token, from_cookie) = match (bearer, cookie(headers)) {
            (Some(bearer), _) => (bearer.trim().to_owned(), false),
            (None, Some(cookie)) => (cookie.to_owned(), true),
            (None, None) => {
                let message = "a token is needed: pair this device, or send `Authorization: Bearer`";
                return Err(ApiError::new(StatusCode::UNAUTHORIZED, ErrorCode::Unauthorized, message));
            }
        };
        let door = self.hub.ask(|reply| Question::Authorize { token, reply }).await??;
        // Only pages have cookies: a proxy's token in one was put there by somebody else.
        if from_cookie && door.role != PeerRole::Browser {
            return Err(AccessError::UnknownToken.into());
        }
        Ok(door)
    }

    /// As [`App::door`], for one kind of peer only.
    pub(crate) async fn door_for(&self, role: PeerRole, headers: &HeaderMap) -> Result<Door, ApiError> {
        let door = self.door(headers).await?;
        if door.role == role {
            return Ok(door);
        }
        let message = format!("this is for {} tokens only", role.as_str());
        Err(ApiError::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized, message))
    }

    /// The cookie that a paired page gets.
    pub(crate) fn cookie_for(&self, token: &str) -> String {
        const TEN_YEARS_SECONDS: u64 = 10 * 365 * 24 * 3600;
        let https = self.tls || self.public_url.as_ref().is_some_and(|url| url.https);
        let secure = if https { "; Secure" } else { "" };
        format!("{COOKIE_NAME}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={TEN_YEARS_SECONDS}{secure}")
    }
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|line| line.split(';')).find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == COOKIE_NAME).then_some(value)
    })
}
