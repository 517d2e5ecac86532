//! The house is kept: what every file must hold to, whoever wrote it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A page per file is the aim; this is where it ends.
const MOST_LINES: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every file of ours with one of these endings, with its text.
fn files(endings: &[&str]) -> Vec<(String, String)> {
    let listed = Command::new("git").arg("ls-files").current_dir(root()).output().expect("git lists the files");
    let names = String::from_utf8(listed.stdout).unwrap();
    let wanted = names.lines().filter(|name| endings.iter().any(|ending| name.ends_with(ending)));
    let read = |name: &str| Some((name.to_owned(), std::fs::read_to_string(root().join(name)).ok()?));
    let files: Vec<_> = wanted.filter_map(read).collect();
    assert!(!files.is_empty(), "no file ends in {endings:?}");
    files
}

const CODE: &[&str] = &[".rs", ".js", ".py", ".sql", ".css", ".html"];

#[test]
fn no_file_is_longer_than_a_person_reads() {
    for (name, text) in files(CODE) {
        let lines = text.lines().count();
        assert!(lines <= MOST_LINES, "{name} has {lines} lines");
    }
}

#[test]
fn nothing_is_left_for_later() {
    // Put together here, so that this file does not accuse itself.
    let marks = [["TO", "DO"], ["FIX", "ME"], ["#[ign", "ore"], ["unimplem", "ented!"]].map(|parts| parts.concat());
    for (name, text) in files(CODE) {
        for mark in &marks {
            assert!(!text.contains(mark), "{name} holds {mark}");
        }
    }
}

#[test]
fn no_file_names_a_folder_of_one_machine() {
    let folders = [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"]].map(|parts| parts.concat());
    for (name, text) in files(&[".rs", ".js", ".py", ".md", ".toml", ".json", "run", "test", "bench"]) {
        for folder in &folders {
            assert!(!text.contains(folder), "{name} names {folder}");
        }
    }
}

#[test]
fn every_module_says_what_it_is_for() {
    for (name, text) in files(&[".rs"]) {
        assert!(text.starts_with("//! "), "{name} begins without a word on what lives in it");
    }
}
