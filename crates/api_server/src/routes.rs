//! All calls of the local API in one table; `docs/formats/local-api.openapi.json` has the same ones.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::handler::Handler;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};

use crate::{calls, chunks, content, events, lines, problem, puts, recipe};
use towpath_service::InProcess;
use towpath_service::metrics::Metrics;
use towpath_service::metrics_page::{CONTENT_TYPE, render};

/// One call.
struct Route {
    method: &'static str,
    path: &'static str,
    router: MethodRouter<InProcess>,
}

fn call<H, T>(filter: MethodFilter, method: &'static str, path: &'static str, handler: H) -> Route
where
    H: Handler<T, InProcess>,
    T: 'static,
{
    Route { method, path, router: on(filter, handler) }
}

fn get<H: Handler<T, InProcess>, T: 'static>(path: &'static str, handler: H) -> Route {
    call(MethodFilter::GET, "get", path, handler)
}

fn post<H: Handler<T, InProcess>, T: 'static>(path: &'static str, handler: H) -> Route {
    call(MethodFilter::POST, "post", path, handler)
}

fn routes() -> Vec<Route> {
    vec![
        post("/v1/put", puts::put),
        post("/v1/put-to-end", puts::put_to_end),
        post("/v1/put-stream", puts::put_stream),
        post("/v1/put-descriptor", puts::put_descriptor),
        post("/v1/puts", puts::open),
        get("/v1/puts/{id}", puts::look),
        call(MethodFilter::DELETE, "delete", "/v1/puts/{id}", puts::abort),
        post("/v1/puts/{id}/data", puts::data),
        post("/v1/puts/{id}/commit", puts::commit),
        post("/v1/get", events::get),
        post("/v1/copy", events::copy),
        post("/v1/index", events::index),
        get("/v1/content", content::by_query),
        call(MethodFilter::HEAD, "head", "/v1/content", content::by_query),
        post("/v1/content", content::by_body),
        get("/v1/chunks", chunks::by_query),
        post("/v1/chunks", chunks::by_body),
        post("/v1/sessions", lines::session),
        get("/v1/events", lines::events),
        get("/v1/objects", calls::list),
        get("/v1/objects/{id}/recipe", recipe::recipe),
        post("/v1/done", calls::done),
        post("/v1/gc", calls::gc),
        get("/v1/status", calls::status),
        // Not of this API's version: what any reader of Prometheus' format asks for.
        get("/metrics", metrics),
    ]
}

/// Method and path of every call.
pub fn table() -> Vec<(&'static str, &'static str)> {
    routes().into_iter().map(|route| (route.method, route.path)).collect()
}

type CountedRequest = (Arc<Metrics>, &'static str);

async fn count(State((metrics, path)): State<CountedRequest>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    metrics.local_request(path, response.status().as_u16());
    response
}

async fn metrics(State(api): State<InProcess>) -> impl IntoResponse {
    let page = tokio::task::spawn_blocking(move || render(&api.0)).await.unwrap_or_default();
    ([("content-type", CONTENT_TYPE)], page)
}

/// The calls, answered by `api`.
pub(crate) fn router(api: InProcess) -> Router {
    let calls = routes().into_iter().fold(Router::new(), |router, Route { path, router: methods, .. }| {
        let counted = from_fn_with_state((Arc::clone(api.0.metrics()), path), count);
        router.route(path, methods.layer(counted))
    });
    calls
        // Bodies of JSON have a limit of their own, the others are streams.
        .layer(DefaultBodyLimit::disable())
        .fallback(problem::no_such_call)
        .method_not_allowed_fallback(problem::wrong_method)
        .with_state(api)
}
