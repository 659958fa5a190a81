// Package interpret reads and shows worksheets. A worksheet is a list of items: markup, references to
// bundles and to other worksheets, and directives, which set the form in which the bundles below them
// are shown.
//
// The package does three things, each as CodaLab's own server does it, so that stock clients show the
// same text:
//
//   - Form: [ParseForm] reads the lines that a person edits into items, [Lines] writes items as lines.
//   - Blocks: [Interpreter.Worksheet] groups a worksheet's items into blocks, such as a table of
//     bundles, the first lines of a file, or an image.
//   - Genpaths: a genpath ("generalized path") names a value of a bundle. It is a field ("name",
//     "summary"), a key of the metadata ("time"), or a file, which begins with a slash, with an optional
//     key inside a JSON, YAML or tab-separated file ("/stats:train/error"). A post-function ("%.3f",
//     "size", "[0:8]") formats the value. [Interpreter.FileGenpaths] and [Interpreter.TableContents]
//     read genpaths of files.
//
// The package imports neither the database nor HTTP. Its callers pass in the objects that the user of
// the request may see, and functions that search, resolve names and read files on behalf of that user.
//
// Worksheets, files and queries come from users. Whatever they contain, the package does not panic, and
// the constants in limits.go bound the work and the size of the answer. An error in one item becomes a
// block with the error's message. Regular expressions are Go's: matching takes linear time, and a
// pattern with a look-around, which Go's lack, leaves its value unchanged.
package interpret
