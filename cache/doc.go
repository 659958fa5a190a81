// Package cache keeps immutable contents on a disk that many hosts share. One process fills a
// content for all of them. Holders pin it while they need it. A trim removes contents without pins.
//
// A content is a file or a directory. A [Key] names it by the request for it, which is known before
// the content is. [Cache.Get] returns the path of the content, and makes the content on the first
// request.
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
// A trimmer takes contents out of use when the cache is too full. A sweeper removes the leftovers
// of dead processes. An heir is a fill that finds the lease of a dead fill. For at most
// Options.Settle, a host may still see the disk as it was before another host's change.
//
// # The life of a content
//
//	      Fill                            Retire                 Remove
//	first name ──link──► standing record ──rename──► retired ──Settle──► gone
//	     │                     ▲                                  ▲
//	     │                 Get: read, pin, probe, read again      │
//	     └────── the fill died or failed ─────────────────────────┘
//
// A record is one file from its first name to its end. It becomes the standing record by link(2),
// which succeeds for only one of several fills. A retired record never comes back: the next Get
// makes another content, although the retired one may still be there.
//
// # The protocol
//
// To probe a directory is to make a file in it and to remove that. After it, the host sees the
// directory as the file server has it. Where Options.Settle is negative, Get does not probe,
// because a host sees its own disk as it is.
//
// Get reads the standing record, which names content T. It pins T, probes the record's directory
// and reads again. If the record still names T and T is there, that is a hit. Otherwise Get begins
// again, and leaves the pin, because another Get of the same holder may rely on it. Gets of one key
// that wait in a process at the same time go through these steps together, each with a pin of its own.
//
// Fill has the key's lease and a token T. It reads the standing record once more, creates the first
// name of T's record, and makes the content. Before it publishes, it writes the record into that
// file, which it never creates again, and pins T. It links the first name to the standing name,
// reads the standing record, and unlinks the first name. If the first name has vanished, Fill
// begins again with a new token.
//
// Retire renames the standing record into retired/. The first trimmer that finds it there unlinks
// the first name, if it still exists, and then makes a note (.seen). Settle begins at the time of
// the note.
//
// A trimmer calls Remove for a retired content. A sweeper, an heir or a failing fill calls it for a
// content that was never published. Remove unlinks the first name of T and probes. It stops if the
// standing record names T or, for a sweeper, an heir or a fill, if a retired record names T. It
// then lists the pins, and stops if one names T. Otherwise it hides the content by a rename, and
// removes the content, its size and its retired record.
//
// # Why it holds
//
// Once Remove has unlinked the first name, no fill can publish T, because nothing links from
// retired/. Remove's probe then shows whether the standing record names T. If it does not, it never
// will again. A Get that hits has pinned T before it saw T in the standing record, and it saw that
// before Remove's probe. Remove lists the pins after the probe, sees this pin, and stops.
//
// The proof needs no clock and no lease. A lease only saves duplicate work. Settle protects a Get
// without a holder. It also outlasts a link that reaches the file server after its client gave up.
//
// The tests check a model of the protocol in every order of steps and faults. docs/contributors/cache.md lists
// the assumptions about the file system, and the leftovers of a process that dies between two
// steps.
package cache
