//! Sets how the module is linked.

fn main() {
    // The assembly of the AV1 decoder refers to its own tables, which the module would otherwise let others replace.
    println!("cargo::rustc-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rerun-if-changed=build.rs");
}
