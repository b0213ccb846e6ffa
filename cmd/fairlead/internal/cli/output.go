package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/core/model"
)

// cell is one field of a table with its colour, an SGR parameter.
type cell struct {
	text string
	sgr  string
}

// table prints rows in aligned columns, two blanks apart. It colours after it
// measured, which text/tabwriter cannot.
func table(w io.Writer, colour bool, rows [][]cell) error {
	var widths []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		row = row[:lastSaid(row)+1]
		for i, c := range row {
			b.WriteString(paint(colour, c.sgr, c.text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+2))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lastSaid is the index of the last cell that says something, -1 if none does: what
// follows would be blanks at the end of a line.
func lastSaid(row []cell) int {
	for i := len(row) - 1; i >= 0; i-- {
		if row[i].text != "" {
			return i
		}
	}
	return -1
}

// dashed puts a dash into the empty cells of rows below headings, but for the last
// column, which is for words: so a reader sees in which column a value stands.
func dashed(rows [][]cell) [][]cell {
	for _, row := range rows {
		for i := range row[:len(row)-1] {
			row[i].text = dash(row[i].text)
		}
	}
	return rows
}

// withRemedy are the rows of a finding, whose last cell is why: what to do about it
// has a line of its own below, as lines with both would be too long to read.
func withRemedy(row []cell, remedy string) [][]cell {
	if remedy == "" {
		return [][]cell{row}
	}
	below := make([]cell, len(row))
	below[len(row)-1].text = "→ " + remedy
	return [][]cell{row, below}
}

// cells makes a row without colour.
func cells(texts ...string) []cell {
	row := make([]cell, len(texts))
	for i, t := range texts {
		row[i] = cell{text: t}
	}
	return row
}

func paint(colour bool, sgr, text string) string {
	if !colour || sgr == "" {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}

// stateColour is the SGR parameter for a state.
func stateColour(s model.State) string {
	switch s {
	case model.StateAlive:
		return "32" // green
	case model.StateSuspect:
		return "33" // yellow
	case model.StateDead:
		return "31" // red
	default:
		return "2" // faint
	}
}

// printable quotes text of other nodes that would steer the terminal.
func printable(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// printJSON prints v on one line, for jq and for tests.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
