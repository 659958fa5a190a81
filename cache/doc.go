// Package cache keeps immutable content on a disk that many hosts share.
//
// Content is named by the request for it, before anybody knows what it is: a
// [Key]. [Cache.Get] returns where the content stands, and on the first request
// has it made. Content is a file or a directory, and knows nothing of the cache.
//
// # Layout
//
//	<cache>/                        0700, as everything that the cache makes
//	└─ sif/                         the key's kind
//	   └─ 3f/                       the first byte of the SHA-256 of the key
//	      ├─ 3f9a…/                 an entry: published whole, never changed
//	      │  ├─ content             the file or directory
//	      │  └─ key.json            the key, for people
//	      └─ .fill-…/               an entry that is being made, or its wreck
//
// # Promises
//
// An entry appears by one rename, after everything in it was flushed: who sees
// it sees all of it, also after a crash of this host. There are no locks. Of
// several processes that make one entry at once, on whatever hosts, one
// publishes; the others find their rename refused, because a directory cannot
// replace one that is not empty, drop what they made, and use what is there.
// Within a process an entry is made once. A process that dies leaves a wreck,
// which is removed when a cache is opened a day later.
//
// # What the disk must do
//
// rename(2) of a directory is atomic and does not replace a directory that is
// not empty, and a look-up by full name finds, after a while, what another host
// has renamed. NFS, Lustre and GPFS do both. That a host does not see an entry
// yet costs making it again, and nothing else.
package cache
