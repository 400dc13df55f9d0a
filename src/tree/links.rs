//! Links between places of a container: the text of a symbolic link, and where it leads.

/// Returns the text of a link in the folder at `folder` to the place at `target`: the relative path between them, as
/// Python's `os.path.relpath` returns it. Both are paths below the root of the container, without a leading slash.
///
/// ```text
/// relative("a/b", "a/c/x.npy") = "../c/x.npy"
/// ```
pub fn relative(folder: &str, target: &str) -> String {
    let parts = |path| str::split(path, '/').filter(|part| !part.is_empty());
    let common = parts(folder).zip(parts(target)).take_while(|(a, b)| a == b).count();
    let up = parts(folder).skip(common).map(|_| "..");
    let text: Vec<&str> = up.chain(parts(target).skip(common)).collect();
    if text.is_empty() { ".".into() } else { text.join("/") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_as_python_has_them() {
        // Python 3.13: os.path.relpath("/" + target, "/" + folder).
        for (folder, target, expected) in [
            ("", "x.npy", "x.npy"),
            ("", "", "."),
            ("a", "", ".."),
            ("a/b", "a/b", "."),
            ("a/b", "a", ".."),
            ("a/b", "a/c/x.npy", "../c/x.npy"),
            ("a/bc", "a/b", "../b"),
            ("a", "a/b/c", "b/c"),
        ] {
            assert_eq!(relative(folder, target), expected, "{folder} {target}");
        }
    }
}
