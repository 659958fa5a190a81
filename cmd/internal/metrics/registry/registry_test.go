package registry_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cl-slurm/cl-slurm/cmd/internal/metrics/registry"
)

// node_exporter has the metrics of its own process.
func TestFileHasNoMetricsOfTheProcess(t *testing.T) {
	t.Parallel()
	count := prometheus.NewCounter(prometheus.CounterOpts{Name: "cl_test_things_total", Help: "Things."})
	page := registry.NewPage("cl_test_", prometheus.Labels{"bridge": "b"}, slog.New(slog.DiscardHandler), count)
	file := filepath.Join(t.TempDir(), "cl.prom")
	if err := page.Write(file); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	page.Handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for where, text := range map[string]string{"file": string(written), "address": answer.Body.String()} {
		if !strings.Contains(text, `cl_test_things_total{bridge="b"} 0`+"\n") || !strings.Contains(text, `cl_test_build_info{bridge="b",`) ||
			strings.Contains(text, "go_goroutines") != (where == "address") {
			t.Errorf("the %s: %s", where, text)
		}
	}
}
