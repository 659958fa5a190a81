// Package nfstest imitates NFS clients of one file server, so that a test can run on "several
// hosts" of one machine:
//
//	func TestMain(m *testing.M) { nfstest.Main(); os.Exit(m.Run()) }
//
//	func TestSomething(t *testing.T) {
//		disk, a, b := t.TempDir(), t.TempDir(), t.TempDir()
//		server := nfstest.Serve(t, disk, nfstest.Options{Seed: 1, AcdirMax: time.Second, …})
//		server.Mount(a)
//		server.Mount(b)
//		server.Inject(nfstest.Fault{Kind: nfstest.LostReply, Rate: 0.01})
//		… // a and b show one directory as two hosts see it; disk is the server's
//		server.Counts() // the faults so far, by kind
//	}
//
// The server and its clients are one process of the test program, which ends and unmounts when the
// test program ends or is killed. Any number of processes of root may use the mounts. The package
// needs root and /dev/fuse.
//
// # Promises that hold
//
// These are promises of nfs(5), "DATA AND METADATA COHERENCE", and of RFC 1813. Linux (fs/nfs)
// keeps them with version 3 of the protocol:
//
//   - Close-to-open. open(2) asks the server for the file's attributes and
//     forgets its data. It sees all data that was closed or fsynced before.
//   - A call that changes names is one step on the server. Create with O_EXCL,
//     link, mkdir and rename decide there, whatever the client's cache says.
//   - A client sees its own changes at once. After it has changed a directory,
//     it reads the listing anew. It also forgets the names in it, unless the
//     server's reply shows that no other client has changed the directory (weak
//     cache consistency; nfs_wcc_update_inode). Then it trusts them for longer.
//
// # Promises that do not hold
//
//   - A client trusts attributes, listings, names and the absence of names for a
//     time (Options). The time of a directory is that of all names in it
//     (nfs_lookup_revalidate, nfs_neg_need_reval). stat(2) and readdir(3) may
//     answer from the past, and so may mkdir(2) or an exclusive create of a name
//     that is gone. An open(2) by an old name opens the old file. Linux asks for
//     a directory's attributes when a program opens it. nfs(5) promises that for
//     files alone, so here a listing may be as old as the names.
//   - The client holds written data back, up to a MiB, until the program closes,
//     syncs or stats the file. close(2) or fsync(2) may report an error, once.
//   - If another client removes a file, a program that has it open gets ESTALE.
//     open(2) tries another look-up first; see [StaleHandle].
//   - A file keeps a silly name, .nfs…, in its directory until it is closed, if
//     this client removes or replaces one of its names while a program here has it
//     open (nfs_sillyrename; real clients do so only if it is open by that name).
//     To replace one takes two steps: the name is missing for a moment, and
//     rename(2) may fail with ENOENT if two hosts do so at the same time. The
//     client uses names from its cache, so it may give the silly name to a file
//     that another host has just put there.
//   - A reply may be lost ([LostReply]). After an EIO the client revalidates
//     the directories that it tried to change (nfs_post_op_update_inode), but
//     not the attributes of the file. Until they expire or the file is opened,
//     st_nlink may have its value from before a link(2).
//   - renameat2(2) takes no flags, and there are no O_TMPFILE, O_APPEND, chown(2),
//     fallocate(2), or extended attributes.
//
// Two things are worse than on real clients. All locks fail (ENOSYS), so that no code can rely on
// one; with nolock, Linux keeps them on each host. An exclusive create fails with EEXIST if its
// request is sent again; RFC 1813 has a verifier against that.
//
// The server's stable storage is not imitated: the server loses nothing.
package nfstest
