// Package cache keeps immutable contents on a disk that many hosts share. A content
// is filled once for all of them, pinned while a holder needs it, and trimmed when
// none does.
//
// A [Key] names a content by the request for it, before anybody knows what it is.
// [Cache.Get] returns where the content stands, and has it made on the first
// request. A content is a file or a directory.
//
// # Layout
//
//	<cache>/
//	├─ sif/                          the key's kind
//	│  └─ 3f/                        the first byte of the SHA-256 of the key
//	│     ├─ 3f9a….json              the standing record: names the content in use
//	│     ├─ 3f9a….<token>.json      a record that is not published yet; this is its first name
//	│     ├─ 3f9a….<token>/content   a content
//	│     └─ 3f9a….000…/             partial content, with which the next fill begins
//	├─ leases/3f9a…                  the process that fills the key
//	├─ pins/3f9a….<token>~<holder>   a holder that needs the content
//	├─ pins/3f9a….json~<holder>      a holder that needs whatever content the key has
//	├─ sizes/3f9a….<token>~<bytes>~<owner>
//	└─ retired/3f9a….<token>~…       records out of use, until their content is removed
//
// A token is 128 random bits. It names one content among all that were ever made
// for a key.
//
// A trimmer is a call that takes contents out of use because the cache is too full. A
// sweeper removes what dead processes left. An heir is a fill that finds the lease of
// a dead one. Options.Settle is how long another host may still see the disk as it
// was before a change.
//
// # The life of a content
//
//	      Fill                            Retire                 Remove
//	first name ──link──► standing record ──rename──► retired ──Settle──► gone
//	     │                     ▲                                  ▲
//	     │                 Get: read, pin, probe, read again      │
//	     └────── the fill died or failed ─────────────────────────┘
//
// A record is one file from its first name to its end. It becomes the standing
// record by link(2): of several fills, one succeeds. A retired record never comes
// back: the next Get makes another content, beside the retired one.
//
// # The protocol
//
// To probe a directory is to make a file in it and to remove it. A host that has
// done so sees the directory as the file server has it. A Get does not probe where
// Options.Settle is negative: one host sees its own disk as it is.
//
// Get reads the standing record, which names content T. It pins T, probes the
// record's directory and reads again. If the record still names T and T is there,
// that is a hit. If not, Get begins again. It drops no pin then, because another Get
// of the same holder may rely on it.
//
// Fill, under the key's lease and with its token T, looks once more, creates the
// first name of T's record, and makes the content. Before it publishes, it writes the
// record into that very file, which it never creates again, and pins T. Then it links
// the first name to the standing name, reads back what stands, and drops the first
// name. If the first name is gone, it begins again with a new token.
//
// Retire renames the standing record into retired/. The first trimmer that finds it
// there unlinks the first name, if there still is one, and makes a note (.seen). The
// time of the note is the beginning of Settle.
//
// Remove is what a trimmer does with a retired content, and a sweeper, an heir or a
// failing fill with one that was never published. It unlinks the first name of T. It
// probes; if the standing record names T, it leaves T. A sweeper, an heir or a fill
// also leaves what a retired record names. Remove lists the pins afresh; if one
// names T, it leaves T. Then it renames the content out of sight and removes it,
// its size and its retired record.
//
// # Why it holds
//
// Once Remove has unlinked the first name, no fill can publish T, and nothing links
// from retired/. Remove's probe then shows whether T is in the standing record. If it
// is not, it never will be again. A Get that hits pins T, then sees T in the standing
// record; it saw that before Remove's probe, and so it had made its pin before the
// probe. Remove lists the pins after the probe, sees this pin, and stops.
//
// No clock and no lease takes part in this. A lease only keeps work from being done
// twice. Settle protects a Get without a holder, and outlasts a link that is still
// on its way to the file server although its client gave up.
//
// The tests check a model of the protocol in every order of steps and faults.
// docs/cache.md says what the protocol assumes of the file system, and what is left
// when a process dies between any two steps.
package cache
