// Package cache keeps immutable content on a disk that many hosts share: filled
// once for all of them, pinned while it is needed, trimmed when it is not.
//
// Content is named by the request for it, before anybody knows what it is: a
// [Key]. [Cache.Get] returns where the content stands, and on the first request
// has it made. Content is a file or a directory, and knows nothing of the cache.
//
// # Layout
//
//	<cache>/
//	├─ sif/                          the key's kind
//	│  └─ 3f/                        the first byte of the SHA-256 of the key
//	│     ├─ 3f9a….json              the record: makes one content known
//	│     ├─ 3f9a….<token>/content   the content; without a record, being made or a wreck
//	│     └─ 3f9a….000…/             what a failed fill left for the next
//	├─ leases/3f9a…                  who fills
//	├─ pins/3f9a…~<holder>           who needs it
//	├─ sizes/3f9a….<token>~<bytes>~<owner>
//	└─ retired/3f9a….<token>~…       records out of use, before their content is removed
//
// # How it works
//
//	Get:  pin ─► record there? ─ yes ─► its content
//	                 │ no
//	                 ▼
//	            lease ours? ── no ──► wait, look again
//	                 │ yes
//	                 ▼
//	            reserve room ─► fill ─► read back, flush ─► link the record ─► release
//
//	Trim: record ─rename─► retired/ ─ Settle, by the server's clock ─► pinned? ─ yes ─► link back
//	                                                                     │ no
//	                                                                     ▼
//	                                                       rename (one wins) ─► remove
//
// A content is known by its record alone, and a record appears by one link(2)
// that at most one of several can make: so only one content of a key is ever
// published, whether leases worked or not. A lease keeps work from being done
// twice; it is judged by the file server's clock, and given up by its holder,
// by the holder's own clock, before others may take it.
//
// A reader pins before it looks. A trimmer takes the record away, waits until
// every host must see that, and only then looks for pins. So one of them
// notices the other, without a lock.
//
// docs/cache.md says what each step assumes of the file system, and what is left
// when a process dies between any two of them.
package cache
