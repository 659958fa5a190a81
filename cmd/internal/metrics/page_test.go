package metrics

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/exposition"
)

// A mistake of the operator ends the program at its start, before any work.
func TestPageThatNobodyCouldReadIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]*Page{
		"serve metrics: listen tcp":     {Address: "256.0.0.1:1"},
		"write metrics: write /nosuch/": {File: "/nosuch/cl.prom"},
	} {
		page := NewPage("cl_test_", [][2]string{{"bridge", "b"}}, slog.New(slog.DiscardHandler), func(*exposition.Text) {})
		page.Address, page.File = p.Address, p.File
		worked := false
		err := page.Around(t.Context(), func() error { worked = true; return nil })
		if err == nil || !strings.HasPrefix(err.Error(), want) || worked {
			t.Errorf("error %v, want %q; worked %t", err, want, worked)
		}
	}
}

// A directory of the textfile collector never shows a file to node_exporter that is not whole, and none of a program that
// has ended.
func TestFileIsWholeAndGoesWithTheProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	things := exposition.Desc{Name: "cl_test_things_total", Help: "Things.", Kind: exposition.Counter}
	page := NewPage("cl_test_", [][2]string{{"bridge", "b"}}, slog.New(slog.DiscardHandler), func(text *exposition.Text) { text.Add(things, 0) })
	page.File = filepath.Join(dir, "cl.prom")
	err := page.Around(t.Context(), func() error {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 || entries[0].Name() != "cl.prom" {
			t.Errorf("%v, %v", entries, err)
		}
		text, err := os.ReadFile(page.File)
		if !strings.Contains(string(text), `cl_test_things_total{bridge="b"} 0`+"\n") || !strings.Contains(string(text), `cl_test_build_info{bridge="b",`) {
			t.Errorf("%s", text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := page.Around(ctx, func() error { return ctx.Err() }); err == nil {
		t.Error("the error of the work is lost")
	}
}
