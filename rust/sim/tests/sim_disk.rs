//! The simulated disk keeps to its own rules: what a strict file system may do after a power loss, and nothing else.

use std::path::Path;

use fletchlog_log::fs::Fs;
use fletchlog_sim::disk_state::Left;
use fletchlog_sim::sim_disk::{Fault, SimDisk};

fn names(disk: &SimDisk, dir: &str) -> Vec<String> {
    let entries = disk.read_dir(Path::new(dir)).unwrap_or_default();
    entries.into_iter().map(|entry| entry.name).collect()
}

fn after_power_loss(disk: &SimDisk) -> SimDisk {
    disk.state().left(Left::Nothing).into()
}

#[test]
fn a_file_needs_its_own_fsync_and_its_directorys() {
    let disk = SimDisk::with_dirs(&[Path::new("/d")]);
    let file = disk.open(Path::new("/d/f"), true, true).unwrap();
    file.write_at(0, b"kept").unwrap();
    file.sync().unwrap();
    assert_eq!(names(&after_power_loss(&disk), "/d"), [""; 0]);
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(after_power_loss(&disk).read(Path::new("/d/f")).unwrap(), b"kept");
    file.write_at(4, b" lost").unwrap();
    assert_eq!(after_power_loss(&disk).read(Path::new("/d/f")).unwrap(), b"kept");
}

#[test]
fn names_in_a_directory_are_there_as_soon_as_its_own_name_is() {
    let disk = SimDisk::with_dirs(&[Path::new("/")]);
    disk.create_dir_all(Path::new("/d")).unwrap();
    disk.replace(Path::new("/d/f"), b"x").unwrap();
    assert!(!after_power_loss(&disk).exists(Path::new("/d/f")));
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(names(&after_power_loss(&disk), "/d"), ["f"]);
}

#[test]
fn what_was_pending_in_a_removed_directory_does_not_come_back_in_the_next_one_of_its_name() {
    let disk = SimDisk::with_dirs(&[Path::new("/d")]);
    disk.create_dir_all(Path::new("/d/t")).unwrap();
    disk.open(Path::new("/d/t/old"), true, true).unwrap();
    disk.rename(Path::new("/d/t"), Path::new("/d/t-delete")).unwrap();
    disk.remove_dir_all(Path::new("/d/t-delete")).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    disk.create_dir_all(Path::new("/d/t")).unwrap();
    let image = SimDisk::from(disk.state().left(Left::Some(&mut || Some(u64::MAX))));
    assert_eq!(
        (names(&image, "/d"), names(&image, "/d/t")),
        (vec!["t".to_owned()], vec![])
    );
}

#[test]
fn after_a_failed_fsync_the_data_is_seen_but_never_gets_to_the_disk() {
    let disk = SimDisk::with_dirs(&[Path::new("/d")]);
    let path = Path::new("/d/f");
    disk.replace(path, b"old").unwrap();
    let file = disk.open(path, true, false).unwrap();
    file.write_at(0, b"newer").unwrap();
    disk.fail(0, Fault::Io);
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
    file.sync().unwrap();
    assert_eq!(disk.read(path).unwrap(), b"newer");
    assert_eq!(after_power_loss(&disk).read(path).unwrap(), b"old");
    disk.drop_cache(path).unwrap();
    assert_eq!(disk.read(path).unwrap(), b"old\0\0");
}

#[test]
fn a_power_loss_may_leave_names_and_sizes_without_the_bytes() {
    let disk = SimDisk::with_dirs(&[Path::new("/d")]);
    let [kept, new, renamed] = ["/d/kept", "/d/new", "/d/renamed"].map(Path::new);
    disk.replace(kept, b"kept").unwrap();
    disk.open(kept, true, false).unwrap().write_at(2, b"lost").unwrap();
    disk.open(new, true, true).unwrap().write_at(3, b"lost").unwrap();
    disk.open(Path::new("/d/tmp"), true, true)
        .unwrap()
        .write_at(0, b"lost")
        .unwrap();
    disk.rename(Path::new("/d/tmp"), renamed).unwrap();
    disk.replace_without_name(Path::new("/d/synced"), b"whole").unwrap();
    let left = SimDisk::from(disk.state().left(Left::Sizes));
    let contents = [kept, new, renamed, Path::new("/d/synced")].map(|path| left.read(path).unwrap());
    assert_eq!(contents, [&b"kept\0\0"[..], &[0; 7], &[0; 4], b"whole"]);
}

#[test]
fn a_short_write_leaves_its_first_half() {
    let disk = SimDisk::with_dirs(&[Path::new("/d")]);
    let file = disk.open(Path::new("/d/f"), true, true).unwrap();
    disk.fail(0, Fault::ShortWrite);
    assert_eq!(file.write_at(0, b"12345678").unwrap_err().raw_os_error(), Some(28));
    assert_eq!(disk.read(Path::new("/d/f")).unwrap(), b"1234");
}
