// Package nfstest imitates NFS clients of one file server, so that a test may
// run on "several hosts" of one machine:
//
//	func TestMain(m *testing.M) { nfstest.Main(); os.Exit(m.Run()) }
//
//	func TestSomething(t *testing.T) {
//		disk, a, b := t.TempDir(), t.TempDir(), t.TempDir()
//		server := nfstest.Serve(t, disk, nfstest.Options{Seed: 1, AcdirMax: time.Second, …})
//		server.Mount(a)
//		server.Mount(b)
//		server.Inject(nfstest.Fault{Kind: nfstest.LostReply, Rate: 0.01})
//		… // a and b are one directory, as two hosts see it; disk is what the server has
//		server.Counts() // what went wrong, by kind
//	}
//
// The server and its clients are one process of the test program's own, which
// ends with it, also when it is killed, and unmounts. Any number of processes of root may
// use the mounts. It takes root, and /dev/fuse.
//
// # What holds
//
// It is what nfs(5), "DATA AND METADATA COHERENCE", and RFC 1813 promise, and
// Linux (fs/nfs) does, with version 3 of the protocol:
//
//   - Close-to-open. open(2) asks the server for the file's attributes and
//     forgets its data. What was written and closed, or fsynced, before is seen.
//   - A call that changes names is one step on the server. Create with O_EXCL,
//     link, mkdir and rename decide there, whatever the client believes.
//   - A client sees its own changes at once. When it changes a directory it
//     reads it anew; what it knew of names there it forgets, unless the server's
//     reply shows that nobody else has changed the directory meanwhile (weak
//     cache consistency; nfs_wcc_update_inode): then that was right, and is
//     believed for longer.
//
// # What does not
//
//   - Attributes, listings, names and the absence of names are believed for a
//     time (Options), that of a directory for all in it (nfs_lookup_revalidate,
//     nfs_neg_need_reval). stat(2), readdir(3), and with them mkdir(2) or an
//     exclusive create of a name that is gone, may answer from the past; an
//     open(2) by an old name opens the file that it was of. Linux asks for a
//     directory's attributes when a program opens it; nfs(5) promises that for
//     files alone, and here a listing may be as old as the names.
//   - What a program writes is held back, up to a MiB, until it closes, syncs,
//     or asks for the file. An error may appear in close(2) or fsync(2), once.
//   - A file that was removed elsewhere is ESTALE for a program that has it open. open(2)
//     tries another look-up first; see [StaleHandle].
//   - A file that is open here, and of which a name is removed or replaced here,
//     keeps a silly name, .nfs…, in its directory until it is closed
//     (nfs_sillyrename; in life only if it is open by that very name). Replacing
//     one is two steps: for a moment there is nothing at the name, and rename(2)
//     may fail with ENOENT when two hosts do so at once. As the client goes by
//     names it believes, the file that gets the silly name may be one that
//     another host has just put there.
//   - A reply may be lost ([LostReply]). After an EIO the client revalidates
//     the directories that it has tried to change (nfs_post_op_update_inode),
//     but not the attributes of the file: until it is opened, or they are old,
//     st_nlink after a link(2) may be what it was before.
//   - renameat2(2) takes no flags, and there are no O_TMPFILE, O_APPEND, chown(2),
//     statfs(2), fallocate(2), or extended attributes.
//
// Two things are worse than in life. Every lock is refused (ENOSYS), so that no
// code can rely on one; with nolock Linux keeps them on each host. And an exclusive
// create fails with EEXIST when its request is sent again, for which RFC 1813 has a
// verifier.
//
// The server's own stable storage is not imitated: nothing is lost on it.
package nfstest
