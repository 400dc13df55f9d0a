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

/// Longest text of a link in bytes (`PATH_MAX` without the NUL).
const LONGEST: usize = 4095;

/// Returns whether a link at a path below the root of its container may have this text: relative, of a length that a link
/// can have, and never above the folder that the container is in.
pub(crate) fn is_allowed(link: &str, target: &str) -> bool {
    if target.is_empty() || target.len() > LONGEST || target.starts_with('/') || target.contains('\0') {
        return false;
    }
    // The root of the container is one level below its folder.
    let mut level = link.split('/').filter(|part| !part.is_empty()).count();
    target.split('/').all(|part| {
        match part {
            ".." if level == 0 => return false,
            ".." => level -= 1,
            "" | "." => {}
            _ => level += 1,
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_link_leads_above_the_folder_of_its_container() {
        for (link, target, expected) in [
            ("l", "x.npy", true),
            ("l", "../other.h5/x.npy", true),
            ("l", "../..", false),
            ("a/l", "../../other.h5", true),
            ("a/l", "b/../../../../etc", false),
            ("l", "/etc/passwd", false),
            ("l", "", false),
            ("l", "a\0b", false),
        ] {
            assert_eq!(is_allowed(link, target), expected, "{link} {target}");
        }
        assert!(!is_allowed("l", &"x".repeat(4096)));
    }

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
