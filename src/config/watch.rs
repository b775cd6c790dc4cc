//! Whether the files of a configuration have changed: they are looked at, again and again.
//!
//! Looking costs a system call for each file, and sees everything: a file written anew, one moved into its
//! place, and the links that Kubernetes turns around to change all files of a ConfigMap or a Secret at once.
//! Being told by the kernel would take a watch on each directory on the way, and tells nothing on some
//! network file systems.

use std::{fs, os::unix::fs::MetadataExt as _, path::PathBuf};

/// Looks at files.
#[derive(Debug, Default)]
pub struct Watch {
    /// How the files were when they were read last.
    read: Vec<(PathBuf, Option<Stamp>)>,
    /// How they were at the last look, if not so.
    changing: Option<Vec<(PathBuf, Option<Stamp>)>>,
}

/// What tells one content of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// When anything of it was changed last, its permissions too: a file that could not be read may be by now.
    changed: (i64, i64),
}

impl Watch {
    /// Whether the files are others than those that were read, and the same as at the look before: what is
    /// being written is left to be finished.
    pub fn look(&mut self) -> bool {
        let now = stamps(self.read.iter().map(|(path, _)| path.clone()));
        if now == self.read {
            self.changing = None;
            return false;
        }
        let settled = self.changing.as_ref() == Some(&now);
        self.changing = Some(now);
        settled
    }

    /// Remembers how these files are now, which are about to be read.
    pub fn about_to_read(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        self.read = stamps(files);
        self.changing = None;
    }
}

fn stamps(files: impl IntoIterator<Item = PathBuf>) -> Vec<(PathBuf, Option<Stamp>)> {
    let stamp = |path: PathBuf| {
        let metadata = fs::metadata(&path).ok();
        let stamp = metadata.map(|metadata| Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        });
        (path, stamp)
    };
    files.into_iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_change_is_told_once_it_has_settled_and_only_until_it_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("config.yaml");
        fs::write(&file, "a").expect("written");
        let mut watch = Watch::default();
        watch.about_to_read([file.clone()]);
        assert!(!watch.look());
        fs::write(&file, "ab").expect("written");
        assert!(!watch.look(), "it may still be written");
        fs::write(&file, "abc").expect("written");
        assert!(!watch.look(), "it was");
        assert!(watch.look());
        watch.about_to_read([file]);
        assert!(!watch.look() && !watch.look());
    }

    #[test]
    fn permissions_that_are_put_right_and_a_time_that_is_put_back_hide_no_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("consumers.yaml");
        fs::write(&file, "a").expect("written");
        let modified = fs::metadata(&file).and_then(|metadata| metadata.modified());
        let mut watch = Watch::default();
        let changed = |watch: &mut Watch| {
            let changed = !watch.look() && watch.look();
            watch.about_to_read([file.clone()]);
            changed
        };
        watch.about_to_read([file.clone()]);
        let readable = fs::Permissions::from_mode(0o644);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("changed");
        assert!(changed(&mut watch), "nobody else may read it");
        fs::set_permissions(&file, readable).expect("changed");
        assert!(changed(&mut watch), "everybody may");
        fs::write(&file, "b").expect("written");
        let written = fs::File::options().write(true).open(&file);
        let put_back = written.and_then(|file| file.set_modified(modified?));
        put_back.expect("put back");
        assert!(changed(&mut watch), "as cp -p leaves it");
        assert!(!changed(&mut watch));
    }

    #[test]
    fn links_turned_around_a_file_that_goes_and_one_that_comes_are_changes() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        for version in ["1", "2"] {
            fs::create_dir(path(version)).expect("made");
            fs::write(path(version).join("config.yaml"), "same").expect("written");
        }
        symlink("1", path("..data")).expect("linked");
        symlink("..data/config.yaml", path("config.yaml")).expect("linked");
        let mut watch = Watch::default();
        let changed = |watch: &mut Watch| {
            let changed = !watch.look() && watch.look();
            watch.about_to_read([path("config.yaml")]);
            changed
        };
        watch.about_to_read([path("config.yaml")]);
        symlink("2", path("..data_tmp")).expect("linked");
        fs::rename(path("..data_tmp"), path("..data")).expect("turned");
        assert!(changed(&mut watch), "turned around");
        fs::remove_file(path("..data")).expect("removed");
        assert!(changed(&mut watch), "gone");
        symlink("1", path("..data")).expect("linked");
        assert!(changed(&mut watch), "there again");
        assert!(!changed(&mut watch));
    }
}
