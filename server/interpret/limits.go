package interpret

// Limits of one request. CodaLab's own server has only maxHeadLines and maxLineBytes.
const (
	// maxHeadLines is the most lines of a file that are read (codalab/rest/interpret.py:
	// interpret_file_genpath).
	maxHeadLines = 10000
	// maxLineBytes times the number of lines bounds the bytes that are read of a file
	// (codalab/rest/interpret.py: MAX_BYTES_PER_LINE).
	maxLineBytes = 1024
	// mostOfABar is the number of bytes that are read of a file whose first lines are a progress bar.
	mostOfABar = 256 << 10
	// maxImage is the largest image that a block shows.
	maxImage = 16 << 20
	// maxYAML is the largest file that is read as YAML; a larger one counts as plain text.
	maxYAML = 1 << 20
	// maxNodes bounds the values in a YAML file after its aliases are expanded.
	maxNodes = 100_000
	// maxDepth bounds the nesting of a YAML file.
	maxDepth = 100

	// maxRead bounds the bytes read from files for one answer.
	maxRead = 64 << 20
	// maxShown bounds the bytes of file contents in one answer, and those of everything else.
	maxShown = 64 << 20
	// maxDescribed bounds the descriptions of bundles in the lines of a worksheet.
	maxDescribed = 16 << 20
	// maxCached bounds the bytes of the files whose values are kept for further cells.
	maxCached = 8 << 20

	// maxFiles bounds the files that are read for one answer.
	maxFiles = 20_000

	// maxSearches bounds the search directives of a worksheet, and maxFound the sum of their results.
	maxSearches = 100
	maxFound    = 10_000

	// maxColumns bounds a table's columns.
	maxColumns = 256

	// maxPosts bounds the post-functions that are kept for further cells.
	maxPosts = 256
	// maxPost is the length of the longest post-function, in bytes.
	maxPost = 4096
	// maxSteps bounds the functions in one post-function.
	maxSteps = 32
	// maxText is the longest text that a post-function may produce.
	maxText = 1 << 20
	// maxPattern is the longest regular expression, in bytes.
	maxPattern = 256
	// maxReplaced is the longest text in which regular expressions are replaced.
	maxReplaced = 64 << 10
	// maxWidth bounds a number's width and precision.
	maxWidth = 1000
)
