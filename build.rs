//! Compiles every `src/providers/*.toml` into the binary: a provider is added by adding its file. Packs the
//! relocations of the static binary.

use std::{env, fs, path::Path};

fn main() {
    let folder = Path::new("src/providers");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("src/providers is part of the source")
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".toml")?.to_owned()))
        .collect();
    names.sort();
    // The folder's place is left to the compiler: two checkouts may share a target folder.
    let file = |name| format!("concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/src/providers/{name}.toml\")");
    let rows: String = names.iter().map(|name| format!("({name:?}, include_str!({})),\n", file(name))).collect();
    // The static binary relocates itself: a quarter of a megabyte of addresses, packed to a few kilobytes. A glibc that is
    // older than 2.36 could not start one of these, so it is for musl only.
    if env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "musl") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("providers.rs");
    fs::write(out, format!("&[\n{rows}]")).expect("OUT_DIR is writable");
}
