// Package contents has the contents of bundles: it describes and sends them, stores uploads, fetches URLs
// and git repositories, makes make bundles, and asks workers for the files of running bundles.
//
// # Reads
//
// Files follows a target through the dependencies of runs to the bundle that has it. While that bundle
// runs, its worker answers (Running). Otherwise the contents are in the store, or a link leads to them.
// A link must lead below one of Config.LinkRoots.
//
// # Uploads and quotas
//
// New contents become a bundle's contents as a whole, in one transaction, or not at all. A user's
// disk_used counts the contents that the user's bundles have. Quotas reserves contents that are being
// written before their bytes reach the disk, so that all uploads of a user together stay within the
// quota, whichever of them fail. Only the upload itself may use the room of the contents that it replaces. At
// the end of an upload the reservation ends and disk_used grows, as one step that no other
// upload of the user can see half done. An upload that does not succeed gives its reservation back.
// Reservations are in memory: a crash ends the uploads.
//
// # Promises
//
//   - Bytes from a bundle do not run in a browser, and a part is never taken for the whole: a stream that
//     breaks off breaks the connection.
//   - An upload by URL reaches no address of the site's own network, unless Config.FetchPrivate names it.
//   - Equal contents of one owner take room on the disk once, count in full, and depend on no other bundle.
//   - One owner's uploads of archives and repositories, or bundles to make, do not hold up another's.
package contents
