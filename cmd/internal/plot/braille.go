package plot

import (
	"math"
	"strings"

	"github.com/guptarohit/asciigraph"

	"github.com/cl-slurm/cl-slurm/internal/curve"
)

// canvas is a drawing in Braille patterns: each character has two columns of four dots (The Unicode Standard, block
// U+2800). There is no library with this that is kept and fits the ones of this program.
type canvas struct {
	width, height int
	// dots are the patterns of the characters, line by line, and owners the series that each was last drawn for.
	dots   []byte
	owners []int
}

// The dots of a character.
const dotColumns, dotRows = 2, 4

// dotBit returns the bit of a dot in a pattern. The fourth row came to Braille later, which shows in the order of the bits.
func dotBit(column, row int) byte {
	return [dotRows][dotColumns]byte{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}[row][column]
}

func newCanvas(width, height int) *canvas {
	return &canvas{width, height, make([]byte, width*height), make([]int, width*height)}
}

// set draws the dot at a column from the left and a row from the bottom.
func (v *canvas) set(series, x, y int) {
	y = v.height*dotRows - 1 - y
	at := y/dotRows*v.width + x/dotColumns
	v.dots[at] |= dotBit(x%dotColumns, y%dotRows)
	v.owners[at] = series
}

// line draws a series. Dots of neighbouring columns are joined, half of the way in each of the two.
func (v *canvas) line(series int, points []curve.Point, b bounds) {
	// A label stands in the middle of its line.
	const middle = float64(dotRows-1) / 2
	previous := math.NaN()
	for x, y := range columnsOf(points, b, v.width*dotColumns, float64((v.height-1)*dotRows)) {
		switch {
		case math.IsNaN(y):
		case math.IsNaN(previous):
			v.set(series, x, int(y+middle))
		default:
			from, to := int(previous+middle), int(y+middle)
			half := (from + to) / 2
			v.column(series, x-1, from, half)
			v.column(series, x, half, to)
		}
		previous = y
	}
}

// column draws the dots from one row to another.
func (v *canvas) column(series, x, from, to int) {
	for y := min(from, to); y <= max(from, to); y++ {
		v.set(series, x, y)
	}
}

// text returns a line of the canvas, without colours if colour is nil.
func (v *canvas) text(line int, colour func(series int) asciigraph.AnsiColor) string {
	const blank = 0x2800
	var out strings.Builder
	painted := -1 // the series of the colour at hand
	paint := func(series int) {
		if colour == nil || series == painted {
			return
		}
		if painted = series; series < 0 {
			out.WriteString(asciigraph.Default.String())
		} else {
			out.WriteString(colour(series).String())
		}
	}
	end := (line + 1) * v.width
	for end > line*v.width && v.dots[end-1] == 0 {
		end--
	}
	for i := line * v.width; i < end; i++ {
		if v.dots[i] == 0 {
			out.WriteByte(' ')
			continue
		}
		paint(v.owners[i])
		out.WriteRune(blank + rune(v.dots[i]))
	}
	paint(-1)
	return out.String()
}
