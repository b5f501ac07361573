//! Errors as problem details (RFC 9457), and bodies of JSON whose every fault is reported as one.

use std::time::Duration;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::{self, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use towpath_api::{ApiError, ErrorKind, Problem};

/// The longest body of JSON. A ticket has some hundred bytes, a path at most 4 KiB.
pub(crate) const MAX_JSON: usize = 256 << 10;
/// Longest time for a body of JSON to come.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// An error with the status it is answered with.
#[derive(Debug)]
pub(crate) struct CallFailure {
    problem: Box<Problem>,
    field: Option<(HeaderName, String)>,
}

impl From<ApiError> for CallFailure {
    fn from(error: ApiError) -> Self {
        Self { problem: Box::new(Problem::of(error)), field: None }
    }
}

impl CallFailure {
    /// The same under another status than its kind's.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.problem.status = status.as_u16();
        self
    }

    /// The same with a field in the answer's head.
    pub(crate) fn with_header(mut self, name: HeaderName, value: String) -> Self {
        self.field = Some((name, value));
        self
    }
}

impl IntoResponse for CallFailure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.problem)).into_response();
        let headers = response.headers_mut();
        if let Some((name, value)) = self.field
            && let Ok(value) = value.parse()
        {
            headers.insert(name, value);
        }
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        response
    }
}

/// Answer to a call.
pub(crate) type ProblemReply<T> = Result<Json<T>, CallFailure>;

/// The answer of a call in process.
pub(crate) fn answer<T: Serialize>(result: Result<T, ApiError>) -> ProblemReply<T> {
    Ok(Json(result?))
}

/// A wrong request.
pub(crate) fn wrong(status: StatusCode, message: impl Into<String>) -> CallFailure {
    CallFailure::from(ApiError::new(ErrorKind::Usage, message)).with_status(status)
}

/// Answers what no route takes.
pub(crate) async fn no_such_call() -> CallFailure {
    let error = ApiError::new(ErrorKind::NotFound, "the local API has no such call");
    CallFailure::from(error.hint("the calls are described in docs/formats/local-api.openapi.json"))
}

/// Answers a path that is there under a method that is not.
pub(crate) async fn wrong_method() -> CallFailure {
    wrong(StatusCode::METHOD_NOT_ALLOWED, "this call has another method; the header Allow tells which")
}

/// A request's body of JSON, of so many bytes at most.
pub(crate) struct JsonBody<T, const MOST: usize = MAX_JSON>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync, const MOST: usize> FromRequest<S> for JsonBody<T, MOST> {
    type Rejection = CallFailure;

    async fn from_request(request: Request, _state: &S) -> Result<Self, CallFailure> {
        if !is_json(request.headers()) {
            let message = "the body needs the header 'Content-Type: application/json'";
            return Err(wrong(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let whole = tokio::time::timeout(LONGEST_WAIT, to_bytes(request.into_body(), MOST)).await;
        let late = |_| wrong(StatusCode::REQUEST_TIMEOUT, "the body did not come to its end in time");
        let bytes = whole.map_err(late)?.map_err(|error| unreadable(&error, MOST))?;
        let parsed = serde_json::from_slice(&bytes);
        parsed
            .map(Self)
            .map_err(|error| wrong(StatusCode::BAD_REQUEST, format!("the body is wrong: {error}")))
    }
}

/// A request's body of JSON, if it has one.
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = CallFailure;

    async fn from_request(request: Request, state: &S) -> Result<Self, CallFailure> {
        let fields = request.headers();
        let is_empty = fields.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0");
        if is_empty && !fields.contains_key(header::TRANSFER_ENCODING) {
            return Ok(Self(T::default()));
        }
        JsonBody::<T>::from_request(request, state).await.map(|JsonBody(said)| Self(said))
    }
}

fn unreadable(error: &axum::Error, most: usize) -> CallFailure {
    let too_long = std::error::Error::source(error).is_some_and(|cause| cause.to_string().contains("limit"));
    if too_long {
        let message = format!("a body of JSON has at most {most} bytes");
        return wrong(StatusCode::PAYLOAD_TOO_LARGE, message);
    }
    wrong(StatusCode::BAD_REQUEST, format!("the body could not be read: {error}"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// A request's query.
pub(crate) struct RequestQuery<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for RequestQuery<T> {
    type Rejection = CallFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, CallFailure> {
        let query = extract::Query::<T>::from_request_parts(parts, state).await;
        let query = query.map_err(|error| wrong(StatusCode::BAD_REQUEST, error.body_text()))?;
        Ok(Self(query.0))
    }
}

/// The variable part of a request's path.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = CallFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, CallFailure> {
        let path = extract::Path::<T>::from_request_parts(parts, state).await;
        let path = path.map_err(|error| wrong(StatusCode::BAD_REQUEST, error.body_text()))?;
        Ok(Self(path.0))
    }
}
