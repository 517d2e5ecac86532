//! What is made from these types for others: the page's TypeScript, the JSON Schemas in `docs/`,
//! and the proof that every golden frame is understood. `scripts/generate` writes the files anew;
//! these tests fail when a committed one is stale.

use crate::browser::{BrowserToRelay, RelayToBrowser};
use crate::envelope::{Envelope, Frames, decode, encode};
use crate::error::{CloseCode, ErrorCode};
use crate::ids::Timestamp;
use crate::proxy::{ProxyToRelay, RelayToProxy};
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema, schema_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use ts_rs::{TS, TypeVisitor};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Compares a generated text with the committed file, or writes it when `REMORA_GENERATE` is set.
fn fresh(path: &str, generated: &str) {
    let file = root().join(path);
    if std::env::var_os("REMORA_GENERATE").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, generated).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == generated, "{path} is stale: run scripts/generate and commit the result");
}

/// The golden frames of one direction, by `type`.
fn golden(direction: &str) -> BTreeMap<String, Value> {
    let folder = root().join("protocol/frames").join(direction);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    files
        .map(|file| {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let frame = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), frame)
        })
        .collect()
}

fn schema<T: JsonSchema>(direction: &str) -> Value {
    let mut schema = schema_for!(Envelope<T>);
    schema.insert("title".into(), direction.into());
    without_null(&mut schema);
    schema.into()
}

/// Optional fields are left out, never null: the schemas ask of others what we do ourselves.
fn without_null(schema: &mut Schema) {
    transform_subschemas(&mut without_null, schema);
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(alternatives)) = schema.get_mut("anyOf") {
        alternatives.retain(|alternative| alternative != &json!({"type": "null"}));
        if let [Value::Object(only)] = alternatives.as_slice() {
            let only = only.clone();
            schema.remove("anyOf");
            only.into_iter().for_each(|(key, value)| drop(schema.insert(key, value)));
        }
    }
}

/// Every type has a golden frame, which is read, said again without loss, and valid by the schema.
fn check<T: Frames + JsonSchema>(direction: &str) {
    let golden = golden(direction);
    let mut types = T::TYPES.to_vec();
    types.sort_unstable();
    assert_eq!(golden.keys().collect::<Vec<_>>(), types, "protocol/frames/{direction}: one file per type");

    let validator = jsonschema::validator_for(&schema::<T>(direction)).unwrap();
    for (frame_type, frame) in golden {
        let decoded = decode::<T>(&frame.to_string()).unwrap_or_else(|refused| panic!("{frame_type}: {refused}"));
        assert_eq!(decoded.body.frame_type(), frame_type);
        let server_ts = frame.get("server_ts").map(|stamp| Timestamp(stamp.as_str().unwrap().to_owned()));
        let again: Value = serde_json::from_str(&encode(&decoded.body, server_ts.as_ref())).unwrap();
        assert_eq!(without_common_fields(again), without_common_fields(frame.clone()), "{frame_type}");
        if let Err(error) = validator.validate(&frame) {
            panic!("{direction}/{frame_type}: {error} at {}", error.instance_path());
        }
    }
}

/// The envelope's ids may stand on any frame; bodies that have no use for them do not keep them.
fn without_common_fields(mut frame: Value) -> Value {
    for field in ["request_id", "connection_id"] {
        frame.as_object_mut().unwrap().remove(field);
    }
    frame
}

#[test]
fn every_golden_frame_is_understood_and_said_again_without_loss() {
    check::<BrowserToRelay>("browser_to_relay");
    check::<RelayToBrowser>("relay_to_browser");
    check::<ProxyToRelay>("proxy_to_relay");
    check::<RelayToProxy>("relay_to_proxy");
}

#[test]
fn the_json_schemas_in_docs_are_fresh() {
    fn write<T: JsonSchema>(direction: &str) {
        fresh(&format!("docs/schema/{direction}.json"), &format!("{:#}\n", schema::<T>(direction)));
    }
    write::<BrowserToRelay>("browser_to_relay");
    write::<RelayToBrowser>("relay_to_browser");
    write::<ProxyToRelay>("proxy_to_relay");
    write::<RelayToProxy>("relay_to_proxy");
}

/// Opens the page's wire types: what no Rust type stands for.
fn typescript_preamble() -> String {
    let codes: String = ErrorCode::ALL.iter().map(|code| format!("\n  | \"{code}\"")).collect();
    format!(
        "// Made from the protocol crate by scripts/generate. Do not edit.\n\n\
         export const PROTOCOL_VERSION = {};\n\n\
         /** Every error code the relay writes. One that is read may be any word: a proxy's own passes through. */\n\
         export type ErrorCode ={codes};\n\n\
         /**\n\
         \x20* A block of a kind that this release does not know. It has a `kind`, but is typed without one, so that\n\
         \x20* a `switch` over the known kinds narrows and what is left for its default branch is this.\n\
         \x20*/\n\
         export type UnknownBlock = {{ kind?: never; [field: string]: unknown }};\n\n",
        crate::PROTOCOL_VERSION
    )
}

/// One field or one alternative per line, where ts-rs writes all of them in a row.
fn laid_out(declaration: &str) -> String {
    let (name, body) = declaration.split_once(" = ").unwrap();
    if body.contains(" | {") {
        let tags_bare = body.replace("{ \"type\"", "{ type").replace("{ \"kind\"", "{ kind");
        return format!("{name} =\n  | {}\n", tags_bare.replace(" | ", "\n  | ").replace(", }", " }"));
    }
    let Some(fields) = body.strip_prefix("{ ") else { return format!("{declaration}\n") };
    let mut text = format!("{name} = {{\n  ");
    let (mut depth, mut rest) = (0, fields);
    while let Some(next) = rest.chars().next() {
        let comment = rest.starts_with("/**").then(|| rest.find("*/").unwrap() + 2);
        let (piece, after) = rest.split_at(comment.unwrap_or(next.len_utf8()));
        rest = after;
        match piece {
            "\n" => {}
            "," if depth == 0 => {
                text.push_str(";\n  ");
                rest = rest.trim_start();
            }
            "{" | "<" => {
                depth += 1;
                text.push_str(piece);
            }
            "}" | ">" => {
                depth -= 1;
                if depth < 0 {
                    text.truncate(text.trim_end().len());
                    text.push('\n');
                }
                text.push_str(piece);
            }
            _ if comment.is_some() => {
                text.push_str(&one_line(piece));
                text.push_str("\n  ");
            }
            _ => text.push_str(piece),
        }
    }
    text + "\n"
}

/// A documentation comment whose text fits on one line, on one line.
fn one_line(comment: &str) -> String {
    let lines: Vec<&str> = comment.lines().filter_map(|line| line.trim_start().strip_prefix("* ")).collect();
    match lines.as_slice() {
        [line] => format!("/** {line} */"),
        _ => comment.to_owned(),
    }
}

#[test]
fn the_pages_wire_types_are_fresh() {
    struct Declarations<'a>(&'a ts_rs::Config, BTreeMap<String, String>);
    impl TypeVisitor for Declarations<'_> {
        fn visit<T: TS + 'static + ?Sized>(&mut self) {
            if T::output_path().is_none() || self.1.contains_key(&T::ident(self.0)) {
                return;
            }
            let docs = one_line(T::docs().unwrap_or_default().trim_end());
            self.1.insert(T::ident(self.0), format!("{docs}\nexport {}", laid_out(&T::decl(self.0))));
            T::visit_dependencies(self);
        }
    }
    let config = ts_rs::Config::new().with_large_int("number");
    let mut declarations = Declarations(&config, BTreeMap::new());
    // The envelope's name is the same whatever is in it, so the frames are visited for themselves.
    declarations.visit::<Envelope<BrowserToRelay>>();
    declarations.visit::<BrowserToRelay>();
    declarations.visit::<RelayToBrowser>();
    let types = declarations.1.into_values().collect::<Vec<_>>().join("\n");
    fresh("web/src/lib/protocol.ts", &(typescript_preamble() + &types));
}

#[test]
fn the_protocol_document_names_every_frame_and_every_code() {
    let document = std::fs::read_to_string(root().join("docs/PROTOCOL.md")).unwrap();
    let frames = [BrowserToRelay::TYPES, RelayToBrowser::TYPES, ProxyToRelay::TYPES, RelayToProxy::TYPES].concat();
    let errors = ErrorCode::ALL.iter().map(|code| code.as_str());
    let closes: Vec<String> = CloseCode::ALL.iter().map(|code| code.number().to_string()).collect();
    for word in frames.into_iter().chain(errors).chain(closes.iter().map(String::as_str)) {
        assert!(document.contains(&format!("`{word}`")), "docs/PROTOCOL.md does not mention `{word}`");
    }
}
