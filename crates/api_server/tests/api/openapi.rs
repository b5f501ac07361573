//! The OpenAPI file and the server say the same: the same calls, and answers as the file has them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use towpath_api_server::table;

use crate::client::{Connection, Reply};
use crate::world::{Daemon, pattern};

fn document() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/local-api.openapi.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Faults of `value` by `schema`: that part of JSON Schema which the file uses. A word that
/// is not known here fails, so that nothing in the file is overlooked.
fn faults(document: &Value, schema: &Value, value: &Value) -> Option<String> {
    let fault = |what: &str| Some(format!("{what}: {value} by {schema}"));
    for (word, rule) in schema.as_object().unwrap() {
        let found = match word.as_str() {
            "$ref" => {
                let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                faults(document, document.pointer(pointer).unwrap(), value)
            }
            "type" => {
                let kinds = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                let fits = kinds.iter().any(|kind| is_of(kind.as_str().unwrap(), value));
                if fits { None } else { fault("another type") }
            }
            "const" => {
                if value == rule {
                    None
                } else {
                    fault("not this value")
                }
            }
            "enum" => {
                if rule.as_array().unwrap().contains(value) {
                    None
                } else {
                    fault("none of these")
                }
            }
            "minimum" => {
                if value.as_f64() >= rule.as_f64() {
                    None
                } else {
                    fault("too little")
                }
            }
            "required" => {
                let missing =
                    rule.as_array().unwrap().iter().find(|name| value.get(name.as_str().unwrap()).is_none());
                missing.and_then(|name| fault(&format!("{name} is missing")))
            }
            "properties" => {
                rule.as_object().unwrap().iter().find_map(|(name, schema)| {
                    value.get(name).and_then(|value| faults(document, schema, value))
                })
            }
            "additionalProperties" => {
                value.as_object().into_iter().flatten().find_map(|(_, value)| faults(document, rule, value))
            }
            "items" => value.as_array().into_iter().flatten().find_map(|value| faults(document, rule, value)),
            "allOf" => rule.as_array().unwrap().iter().find_map(|schema| faults(document, schema, value)),
            "oneOf" => {
                let all = rule.as_array().unwrap();
                let fitting = all.iter().filter(|schema| faults(document, schema, value).is_none()).count();
                if fitting == 1 { None } else { fault(&format!("{fitting} of the alternatives fit")) }
            }
            "description" => None,
            word => panic!("the test does not know {word}"),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        kind => panic!("no type is called {kind}"),
    }
}

/// Fields that a value has and the schema does not name: the file would not tell of them.
fn unnamed(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut named = BTreeSet::new();
    names(document, schema, value, &mut named);
    value
        .as_object()
        .map_or_else(Vec::new, |value| value.keys().filter(|name| !named.contains(*name)).cloned().collect())
}

fn names(document: &Value, schema: &Value, value: &Value, found: &mut BTreeSet<String>) {
    if let Some(pointer) = schema["$ref"].as_str() {
        names(document, document.pointer(&pointer[1..]).unwrap(), value, found);
    }
    found.extend(schema["properties"].as_object().into_iter().flat_map(|names| names.keys().cloned()));
    for word in ["oneOf", "allOf"] {
        let alternatives = schema[word].as_array().into_iter().flatten();
        alternatives
            .filter(|schema| faults(document, schema, value).is_none())
            .for_each(|schema| names(document, schema, value, found));
    }
}

/// The answers of calls against the file.
struct Checker {
    document: Value,
    daemon: Daemon,
    checked: BTreeSet<(String, String)>,
}

impl Checker {
    /// Makes a call, whose path in the file is `template`, and checks its answer.
    fn call(&mut self, method: &str, template: &str, path: &str, body: Option<Value>) -> Reply {
        let operation = &self.document["paths"][template][method.to_lowercase()];
        if let Some(body) = &body {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            assert_eq!(faults(&self.document, schema, body), None);
        }
        let reply = self.daemon.call(method, path, body);
        self.check(method, template, reply)
    }

    /// The same with a body of bytes.
    fn send(&mut self, template: &str, path: &str, bytes: &[u8]) -> Reply {
        let mut connection = self.daemon.connect();
        connection.request("POST", path, &[], bytes);
        let reply = connection.reply();
        self.check("POST", template, reply)
    }

    fn check(&mut self, method: &str, template: &str, reply: Reply) -> Reply {
        let method = method.to_lowercase();
        let responses = &self.document["paths"][template][&method]["responses"];
        let status = reply.head.status.to_string();
        let response = match responses.get(&status) {
            Some(response) => response,
            None => {
                assert!(reply.head.status >= 400, "{method} {template} {status} is not in the file");
                &responses["default"]
            }
        };
        let response = match response["$ref"].as_str() {
            Some(pointer) => self.document.pointer(&pointer[1..]).unwrap(),
            None => response,
        };
        let kind = reply.head.field("content-type").unwrap();
        let media =
            response["content"].get(kind).unwrap_or_else(|| panic!("{template}: {kind} is not in the file"));
        let values = match kind {
            "application/json" | "application/problem+json" => vec![reply.json()],
            "application/x-ndjson" => reply.events(),
            _ => Vec::new(),
        };
        for value in values {
            let schema = &media["schema"];
            assert_eq!(faults(&self.document, schema, &value), None, "{method} {template}");
            let whole =
                if schema["type"] == "array" { value.as_array().unwrap().clone() } else { vec![value] };
            let schema = if schema["type"] == "array" { &schema["items"] } else { schema };
            for value in whole {
                assert_eq!(unnamed(&self.document, schema, &value), [""; 0], "{method} {template} {value}");
            }
        }
        self.checked.insert((method, template.into()));
        reply
    }

    /// The first line of an answer that stays open.
    fn line(&mut self, connection: &mut Connection, method: &str, template: &str) -> Value {
        let mut head = connection.head().unwrap();
        let event = connection.event().unwrap();
        head.fields.retain(|(name, _)| name != "content-length");
        let body = event.to_string().into_bytes();
        self.check(method, template, Reply { head, body });
        event
    }
}

#[test]
fn the_file_and_the_server_have_the_same_calls() {
    let document = document();
    let mut in_file = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        in_file.extend(methods.as_object().unwrap().keys().map(|method| (method.clone(), path.clone())));
    }
    let table = table();
    let served: BTreeSet<_> = table.iter().map(|(method, path)| ((*method).into(), (*path).into())).collect();
    assert_eq!(in_file, served);
    // And the table is what the server goes by.
    let daemon = Daemon::start();
    for (method, path) in table {
        let reply = daemon.call("PATCH", &path.replace("{id}", "x"), None).with(405);
        let allowed = reply.head.field("allow").unwrap().to_lowercase();
        assert!(allowed.split(',').any(|known| known == method), "{method} {path}: {allowed}");
    }
}

fn copies_and_indexes(checker: &mut Checker) {
    let (source, copy) = (checker.daemon.file("source", b"some"), checker.daemon.dir.path().join("copy"));
    let mut request = json!({
        "mode": "sync",
        "sources": [source],
        "destination": copy,
        "umask": 0o22,
        "options": { "check": "content", "preserve": { "owner": false } },
    });
    let path = "/v1/copy";
    checker.call("POST", path, path, Some(request.clone())).with(200);
    assert_eq!(std::fs::read(&copy).unwrap(), b"some");
    request["sources"] = json!(["/nowhere at all"]);
    checker.call("POST", path, path, Some(request.clone())).with(200);
    // Values that may not be: a relative path, another machine without its socket, an option that is not known.
    for (field, value) in
        [("sources", json!(["x"])), ("sources", json!(["host:x"])), ("options", json!({ "dry": true }))]
    {
        let mut request = request.clone();
        request[field] = value;
        checker.call("POST", path, path, Some(request)).with(400);
    }
    let path = "/v1/index";
    let directories = json!({ "directories": [checker.daemon.dir.path()] });
    checker.call("POST", path, path, Some(directories)).with(200);
    checker.call("POST", path, path, Some(json!({ "directories": ["/nowhere at all"] }))).with(200);
}

#[test]
fn answers_are_as_the_file_says() {
    let mut checker = Checker { document: document(), daemon: Daemon::start(), checked: BTreeSet::new() };
    let bytes = pattern(1, 400_000);
    let file = checker.daemon.file("a file", &bytes);
    let mut events = checker.daemon.connect();
    events.request("GET", "/v1/events", &[], b"");
    let mut session = checker.daemon.connect();
    session.request("POST", "/v1/sessions", &[], b"");
    let name = checker.line(&mut session, "POST", "/v1/sessions")["session"].clone();

    let path = "/v1/put";
    let put =
        checker.call("POST", path, path, Some(json!({ "path": file, "session": name }))).with(200).json();
    checker.call("POST", path, path, Some(json!({ "path": file, "boundaries": [9, 1000] }))).with(200);
    checker.call("POST", path, path, Some(json!({ "path": file, "boundaries": [9, 9] }))).with(400);
    let other = checker.daemon.file("another", &bytes);
    let several = json!({ "path": file, "more": [other], "filters": ["- *.o", [45, 32, 255]], "name": "both",
                "metadata": { "owner_names": true, "all_xattrs": true } });
    checker.call("POST", path, path, Some(several)).with(200);
    checker.call("POST", path, path, Some(json!({ "path": "/nowhere at all" }))).with(404);
    let path = "/v1/put-to-end";
    checker.call("POST", path, path, Some(json!({ "path": file }))).with(200);
    checker.call("POST", path, path, Some(json!({ "path": "/nowhere at all" }))).with(200);
    checker.send("/v1/put-stream", "/v1/put-stream?name=words", b"some words").with(200);
    let path = "/v1/put-descriptor";
    checker.call("POST", path, path, Some(json!({ "boundaries": [7] }))).with(400);
    let path = "/v1/puts";
    checker.call("POST", path, path, Some(json!({ "kind": "tree" }))).with(200);
    let open = checker.call("POST", path, path, Some(json!({ "name": "parts" }))).with(200).json();
    let id = open["oid"].as_str().unwrap();
    let (one, data) = ("/v1/puts/{id}", "/v1/puts/{id}/data");
    checker.send(data, &format!("/v1/puts/{id}/data?offset=0"), &bytes).with(200);
    checker.send(data, &format!("/v1/puts/{id}/data?offset=1000000"), b"x").with(400);
    checker.send(data, &format!("/v1/puts/{id}/data?offset=400000&boundary=true"), b"x").with(200);
    checker.call("GET", one, &format!("/v1/puts/{id}"), None).with(200);
    let commit = format!("/v1/puts/{id}/commit");
    checker.call("POST", "/v1/puts/{id}/commit", &commit, None).with(200);
    let recipe = "/v1/objects/{id}/recipe";
    checker.call("GET", recipe, &format!("/v1/objects/{id}/recipe"), None).with(200);
    checker.call("GET", recipe, &format!("/v1/objects/live:{}/recipe", "0".repeat(64)), None).with(404);
    let open = checker.call("POST", path, path, Some(json!({}))).with(200).json();
    checker.call("DELETE", one, &format!("/v1/puts/{}", open["oid"].as_str().unwrap()), None).with(200);
    checker.line(&mut events, "GET", "/v1/events");

    let ticket = put["ticket"].as_str().unwrap();
    let query = format!("?ticket={ticket}");
    let request =
        json!({ "ticket": ticket, "output": checker.daemon.dir.path().join("out"), "directory": "/" });
    checker.call("POST", "/v1/get", "/v1/get", Some(request.clone())).with(200);
    let list = json!({ "ticket": ticket, "directory": "/", "list": true });
    let told = checker.call("POST", "/v1/get", "/v1/get", Some(list)).with(200).events();
    assert!(told.iter().any(|event| event["event"] == "entry" && event["path"] == "a file"), "{told:?}");
    let part = json!({ "ticket": ticket, "directory": "/", "paths": ["x", [255]], "filters": ["- *.o"] });
    checker.call("POST", "/v1/get", "/v1/get", Some(part)).with(200);
    checker.call("POST", "/v1/get", "/v1/get", Some(json!({ "ticket": "x", "directory": "/" }))).with(200);
    let both = checker.call(
        "POST",
        "/v1/put",
        "/v1/put",
        Some(json!({ "path": file, "more": [other], "name": "both" })),
    );
    let copy = checker.daemon.dir.path().join("updated");
    std::fs::create_dir(&copy).unwrap();
    std::fs::write(copy.join("extra"), "x").unwrap();
    let update = json!({ "delete": true, "force": true, "suffix": "~" });
    let preserve = json!({ "special_bits": true, "group": false });
    let update = json!({ "ticket": both.json()["ticket"], "output": copy, "directory": "/", "preserve": preserve,
        "update": update });
    let told = checker.call("POST", "/v1/get", "/v1/get", Some(update)).with(200).events();
    for event in ["receiving", "item", "deleted"] {
        assert!(told.iter().any(|told| told["event"] == event), "{told:?}");
    }
    copies_and_indexes(&mut checker);
    for path in ["/v1/content", "/v1/chunks"] {
        checker.call("GET", path, &format!("{path}{query}"), None).with(200);
        checker.call("POST", path, path, Some(json!({ "ticket": ticket, "timeout": 5 }))).with(200);
        checker.call("GET", path, path, None).with(400);
    }
    checker.call("HEAD", "/v1/content", &format!("/v1/content{query}"), None).with(200);
    checker.call("POST", "/v1/done", "/v1/done", Some(json!(ticket))).with(200);
    checker.call("GET", "/v1/objects", "/v1/objects?cached=true", None).with(200);
    checker.call("POST", "/v1/gc", "/v1/gc", Some(json!({ "all": true }))).with(200);
    checker.call("GET", "/v1/status", "/v1/status", None).with(200);
    checker.call("GET", "/metrics", "/metrics", None).with(200);
    let all: BTreeSet<_> = table().into_iter().map(|(method, path)| (method.into(), path.into())).collect();
    assert_eq!(checker.checked, all, "every call was made");
}
