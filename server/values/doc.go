// Package values finds the values in small files of bundles' contents, such as the accuracy in stats.json, so that searches
// can choose and sort bundles by them.
//
// # What counts
//
// A value is a number, a text or a truth value. Its path is the genpath by which worksheets and cl show it:
//
//	/stats.json:test/error     a key of a JSON or YAML file (.json, .yaml, .yml), or of a file named stats
//	/log.jsonl:-1:loss         a key in the last line of JSON lines (.jsonl, .ndjson)
//	/log.csv:-1:loss           a column in the last row of a table whose first row names the columns (.csv)
//
// Numbers in texts count as numbers. NaN and infinities are texts: they compare with no number, and sort after all
// numbers. Elements of lists are no values.
//
// # Bounds
//
// Contents come from users, so the constants below bound the entries, files and bytes that are read, and the number, depth
// and length of the values. What exceeds a bound has no values; nothing fails for it. Links lead to nothing.
//
// # When
//
// An [Indexer] compares names: the store keeps the name of the contents whose values it has. New contents have another
// name, in whatever way they came, and so have the contents of an older server. It looks for them at the start, after changes, and for each search that needs values. Nothing else of the server knows of
// values, so that they delay no bundle. A search that needs values waits for the Indexer, for a bounded time.
package values

// Bounds of one bundle.
const (
	maxLevels  = 3         // of directories, the first one included
	maxEntries = 5_000     // that are looked at
	maxFiles   = 64        // that are read
	maxRead    = 1 << 20   // bytes of all files together
	maxFile    = 256 << 10 // bytes of a JSON or YAML file
	maxValues  = 1_000
	maxKeys    = 6   // levels of keys
	maxPath    = 250 // bytes of a path
	maxText    = 200 // bytes of a text
)
