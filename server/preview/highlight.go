package preview

import (
	"context"
	"html/template"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
)

// mostColoured is the number of bytes of a text that are coloured: a lexer tries many patterns at each place.
const mostColoured = 64 << 10

// lexerName returns the name of the lexer of a file; empty for none.
func lexerName(name string) string {
	switch base := path.Base(name); {
	case base == "Dockerfile" || strings.HasPrefix(base, "Dockerfile."):
		return "docker"
	case base == "Makefile" || base == "makefile" || base == "GNUmakefile":
		return "make"
	case base == "CMakeLists.txt":
		return "cmake"
	}
	return lexerNames()[strings.ToLower(path.Ext(name))]
}

// isLexer reports whether a lexer is one of those that files have. Others may be slow.
func isLexer(name string) bool {
	return slices.Contains(slices.Collect(maps.Values(lexerNames())), name)
}

// lexerNames are the names of lexers by the extensions of files.
func lexerNames() map[string]string {
	return map[string]string{
		".py": "python", ".pyi": "python", ".pyx": "cython", ".r": "r", ".jl": "julia", ".m": "matlab", ".sh": "bash", ".bash": "bash", ".zsh": "bash",
		".slurm": "bash", ".sbatch": "bash", ".c": "c", ".h": "c", ".cc": "c++", ".cpp": "c++", ".cxx": "c++", ".hpp": "c++", ".cu": "c++", ".cuh": "c++",
		".go": "go", ".rs": "rust", ".java": "java", ".kt": "kotlin", ".scala": "scala", ".js": "javascript", ".mjs": "javascript", ".jsx": "javascript",
		".ts": "typescript", ".tsx": "typescript", ".cs": "csharp", ".rb": "ruby", ".pl": "perl", ".lua": "lua", ".hs": "haskell", ".f90": "fortran", ".f": "fortran",
		".sql": "sql", ".css": "css", ".html": "html", ".htm": "html", ".xml": "xml", ".tex": "tex", ".bib": "bibtex", ".md": "markdown", ".json": "json",
		".ipynb": "json", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".ini": "ini", ".cfg": "ini", ".diff": "diff", ".patch": "diff", ".mk": "make", ".dockerfile": "docker", ".cmake": "cmake",
	}
}

// highlight returns a text as HTML, in which keywords, names, strings, numbers and comments have classes, up to most of
// its bytes. It colours no more once ctx has ended.
func highlight(ctx context.Context, lexer, text string, most int) template.HTML {
	var out strings.Builder
	coloured := text[:min(len(text), most)]
	coloured = coloured[:len(wholeRunes([]byte(coloured)))]
	done := 0
	if l := lexers.Get(lexer); l != nil && isLexer(lexer) && coloured != "" && ctx.Err() == nil {
		// A lexer may refuse a text, or read it otherwise than it is written; what its tokens do not have is written after them.
		if next, err := l.Tokenise(&chroma.TokeniseOptions{State: "root"}, coloured); err == nil {
			done = writeTokens(ctx, &out, next, coloured)
		}
	}
	template.HTMLEscape(&out, []byte(text[done:]))
	return template.HTML(out.String()) //nolint:gosec // all text in it is escaped
}

// writeTokens writes tokens as long as they are those of the text, and returns how much of that they are.
func writeTokens(ctx context.Context, out *strings.Builder, next chroma.Iterator, text string) (done int) {
	open, begin := "", 0
	flush := func() {
		if done > begin {
			if open != "" {
				out.WriteString(`<span class="` + open + `">`)
			}
			template.HTMLEscape(out, []byte(text[begin:done]))
			if open != "" {
				out.WriteString("</span>")
			}
		}
		begin = done
	}
	for t := next(); t != chroma.EOF && ctx.Err() == nil && strings.HasPrefix(text[done:], t.Value); t = next() {
		if class := classOf(t.Type); class != open && strings.TrimSpace(t.Value) != "" {
			flush()
			open = class
		}
		done += len(t.Value)
	}
	flush()
	return done
}

// classOf returns the class of a token in style.css; empty for none.
func classOf(t chroma.TokenType) string {
	switch {
	case t == chroma.GenericInserted:
		return "code-added"
	case t == chroma.GenericDeleted:
		return "code-removed"
	case t == chroma.GenericHeading, t == chroma.GenericSubheading, t.InCategory(chroma.Keyword), t == chroma.OperatorWord:
		return "code-keyword"
	case t == chroma.NameFunction, t == chroma.NameClass, t == chroma.NameTag, t == chroma.NameBuiltin, t == chroma.NameDecorator, t == chroma.NameAttribute:
		return "code-name"
	case t.InSubCategory(chroma.LiteralString):
		return "code-string"
	case t.InSubCategory(chroma.LiteralNumber):
		return "code-number"
	case t.InCategory(chroma.Comment):
		return "code-comment"
	}
	return ""
}
