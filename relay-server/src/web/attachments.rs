//! Uploads and downloads. Bytes lie on disk under their own hash; no name from outside is a path.

use super::App;
use super::access::ApiError;
use crate::hub::{Door, NewFile, Question};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use protocol::connection::PeerRole;
use protocol::error::ErrorCode;
use protocol::ids::AttachmentId;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;

/// A name a person gave to a file.
const LONGEST_NAME: usize = 200;

/// A type is recognised by this much of the file's beginning.
const SNIFFED_BYTES: usize = 8192;

/// A pause this long ends an upload.
const UPLOAD_PAUSE: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
pub(super) struct UploadQuery {
    #[serde(default)]
    name: String,
}

/// Takes the request's body as a file and returns its id.
pub(super) async fn upload(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Query(query): Query<UploadQuery>,
    request: Request,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let by = app.door_for(PeerRole::Browser, &headers).await?;
    let limits = &app.limits;
    let (count, used) = app.hub.ask(|reply| Question::FileTotals { reply }).await?;
    if count >= limits.max_attachments {
        let message = format!("{count} files are kept already: the oldest unused ones go after a day");
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::LimitReached, message));
    }
    let room = limits.attachment_quota_bytes.saturating_sub(used);
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let most = limits.max_attachment_bytes.min(room);
    if announced.is_some_and(|announced| announced > most) {
        return Err(too_large(&app, room));
    }
    let received =
        Received::store(&limits.attachments_dir, request.into_body(), most).await.map_err(|error| match error {
            Refusal::TooLarge => too_large(&app, room),
            Refusal::Empty => ApiError::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidMessage, "the file is empty"),
            Refusal::Broken(why) => ApiError::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidMessage, why),
            Refusal::Disk(error) => {
                tracing::error!(%error, "an upload could not be written");
                let message = "the relay cannot write files now; try again later";
                ApiError::new(StatusCode::INSUFFICIENT_STORAGE, ErrorCode::StorageFull, message)
            }
        })?;
    let file = NewFile {
        sha256: received.sha256,
        name: harmless_name(&query.name),
        media_type: received.media_type,
        size_bytes: received.size_bytes,
        by,
    };
    // Uploads at the same time may together be too much: the hub counts again, one after the other.
    let Some(kept) = app.hub.ask(|reply| Question::KeepFile { file, reply }).await? else {
        return Err(too_large(&app, 0));
    };
    let body = json!({
        "attachment_id": kept.attachment_id,
        "name": kept.name,
        "size_bytes": kept.size_bytes,
        "media_type": kept.media_type,
        "sha256": kept.sha256,
    });
    Ok((StatusCode::CREATED, Json(body)))
}

fn too_large(app: &App, room: u64) -> ApiError {
    let most = app.limits.max_attachment_bytes;
    if room < most {
        let message = format!("only {room} bytes are left for files: old ones must go first");
        return ApiError::new(StatusCode::INSUFFICIENT_STORAGE, ErrorCode::StorageFull, message);
    }
    let message = format!("a file may have at most {most} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::ContentTooLarge, message)
}

/// A name as a person would read it: no folders, no control characters.
fn harmless_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = last.chars().filter(|character| !character.is_control()).take(LONGEST_NAME).collect();
    if name.trim_matches(['.', ' ']).is_empty() { "file".to_owned() } else { name }
}

/// Why an upload was not taken.
enum Refusal {
    TooLarge,
    Empty,
    Broken(String),
    Disk(std::io::Error),
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::Disk(error)
    }
}

/// A body that lies on disk, under its hash.
struct Received {
    sha256: String,
    media_type: String,
    size_bytes: u64,
}

impl Received {
    /// Writes the body beside its final place, then gives it the name of its content.
    async fn store(folder: &FilePath, body: Body, most: u64) -> Result<Self, Refusal> {
        tokio::fs::create_dir_all(folder).await?;
        let partial = Partial(folder.join(format!("partial-{}", uuid::Uuid::new_v4())));
        let mut file = File::create(&partial.0).await?;
        let mut chunks = body.into_data_stream();
        let (mut hash, mut head, mut size_bytes) = (Sha256::new(), Vec::new(), 0u64);
        loop {
            let chunk = match tokio::time::timeout(UPLOAD_PAUSE, chunks.next()).await {
                Ok(Some(Ok(chunk))) => chunk,
                Ok(Some(Err(error))) => return Err(Refusal::Broken(format!("the upload broke off: {error}"))),
                Ok(None) => break,
                Err(_) => return Err(Refusal::Broken("the upload paused for too long".into())),
            };
            size_bytes += chunk.len() as u64;
            if size_bytes > most {
                return Err(Refusal::TooLarge);
            }
            if head.len() < SNIFFED_BYTES {
                head.extend_from_slice(&chunk[..chunk.len().min(SNIFFED_BYTES - head.len())]);
            }
            hash.update(&chunk);
            file.write_all(&chunk).await?;
        }
        if size_bytes == 0 {
            return Err(Refusal::Empty);
        }
        file.sync_all().await?;
        let sha256: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        tokio::fs::rename(&partial.0, folder.join(&sha256)).await?;
        Ok(Self { sha256, media_type: sniffed(&head), size_bytes })
    }
}

/// A half-written file; removed unless it was renamed.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The type the bytes show; what the sender claims is not believed.
fn sniffed(head: &[u8]) -> String {
    let known = infer::get(head).map(|kind| kind.mime_type());
    // The last character may be cut in two where the head ends.
    let is_utf8 = std::str::from_utf8(head).map_or_else(|error| error.error_len().is_none(), |_| true);
    let is_text = is_utf8 && !head.contains(&0);
    known.unwrap_or(if is_text { "text/plain" } else { "application/octet-stream" }).to_owned()
}

/// Hands a file out, never to be shown as a page of ours.
pub(super) async fn download(
    State(app): State<Arc<App>>,
    Path(attachment_id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let by: Door = app.door(&headers).await?;
    let attachment_id = AttachmentId::new(attachment_id);
    let file = app.hub.ask(|reply| Question::File { attachment_id, by, reply }).await?;
    let missing = || ApiError::new(StatusCode::NOT_FOUND, ErrorCode::InvalidMessage, "no such file for you");
    let file = file.ok_or_else(missing)?;
    let bytes = File::open(app.limits.attachments_dir.join(&file.sha256)).await.map_err(|_| missing())?;
    let encoded: String = file.name.bytes().map(percent_encoded).collect();
    let disposition = format!("attachment; filename*=UTF-8''{encoded}");
    let headers = [
        (CONTENT_TYPE, file.media_type),
        (CONTENT_LENGTH, file.size_bytes.to_string()),
        (CONTENT_DISPOSITION, disposition),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".to_owned()),
    ];
    let mut response = Body::from_stream(ReaderStream::new(bytes)).into_response();
    for (name, value) in headers {
        let value = HeaderValue::from_str(&value).map_err(|_| missing())?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

fn percent_encoded(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_outside_is_never_a_path() {
        let cases = [
            ("photo.png", "photo.png"),
            ("../../etc/passwd", "passwd"),
            ("C:\\Users\\me\\a b.txt", "a b.txt"),
            ("..", "file"),
            ("", "file"),
            ("a\u{0}\nb", "ab"),
        ];
        for (given, expected) in cases {
            assert_eq!(harmless_name(given), expected);
        }
    }

    #[test]
    fn a_type_is_what_the_bytes_show() {
        assert_eq!(sniffed(b"\x89PNG\r\n\x1a\n0000"), "image/png");
        assert_eq!(sniffed(b"hello"), "text/plain");
        assert_eq!(sniffed(b"\x00\x01\x02"), "application/octet-stream");
    }
}
