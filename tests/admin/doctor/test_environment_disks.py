"""Which file systems are fit for a database."""

import pytest

from icd.admin.doctor.environment import filesystem, kind_of, space

MOUNTS = r"""
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:40 / /home rw - nfs4 server:/home rw,vers=4.2
31 30 0:41 / /home/me/local rw shared:1 master:2 - btrfs /dev/vdb rw
32 27 0:42 / /mnt/with\040space rw - fuse.sshfs me@host: rw
33 27 0:43 / /mnt/twice rw - ext4 /dev/vdc rw
34 33 0:44 / /mnt/twice rw - cifs //server/share rw
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/", "ext4"),
        ("/srv/project/.clavain", "ext4"),
        ("/home/me/project/.clavain", "nfs4"),
        ("/homely/project", "ext4"),
        ("/home/me/local/project", "btrfs"),
        ("/mnt/with space/project", "fuse.sshfs"),
        ("/mnt/twice/project", "cifs"),
    ],
)
def test_the_nearest_mount_tells_the_kind(directory, kind):
    assert kind_of(directory, MOUNTS) == kind


def test_a_local_directory_is_fine(scene, database, told):
    assert told(filesystem(scene(), database.path)) == []


@pytest.mark.parametrize(
    "name", ["Dropbox", "dropbox", "OneDrive - Company", "Google Drive", "Mobile Documents"]
)
def test_a_directory_that_is_copied_elsewhere_is_told(scene, tmp_path, told, name):
    directory = tmp_path / name / "project" / ".clavain"

    ((check, severity, message),) = told(filesystem(scene(), str(directory / "intercore.db")))

    assert (check, severity) == ("filesystem", "warning")
    assert message.startswith(f"{directory} is synced to other machines ({name})")


def test_a_name_that_only_resembles_one_is_fine(scene, tmp_path, told):
    path = tmp_path / "my-dropbox-clone" / ".clavain" / "intercore.db"

    assert told(filesystem(scene(), str(path))) == []


def test_a_disk_with_room_is_fine_and_nothing_is_left_there(scene, database, project, told):
    before = sorted(project.rglob("*"))

    assert told(space(scene(), database.path)) == []
    assert sorted(project.rglob("*")) == before
