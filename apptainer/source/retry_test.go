package source_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

const hubRefusal = `{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your unauthenticated pull rate limit."}]}`

func TestRateLimitsAreReportedWithWhatHelps(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		header  map[string]string
		login   bool
		after   time.Duration
		asked   int64 // the number of requests for the manifest
		refusal int
		words   string
	}{
		"spent": {
			map[string]string{"RateLimit-Limit": "100;w=21600", "RateLimit-Remaining": "0;w=21600"},
			false, 0, 1, 429,
			"the registry refuses further requests for a while (429 Too Many Requests): it allows 100 pulls in 6h0m0s without a login; a login or a mirror for HOST would help",
		},
		"spent with a login": {
			map[string]string{"RateLimit-Limit": "200;w=21600", "RateLimit-Remaining": "0", "Retry-After": "3600"},
			true, time.Hour, 1, 429,
			"(429 Too Many Requests): it allows 200 pulls in 6h0m0s, and wants to be asked again in 1h0m0s; a mirror for HOST would help",
		},
		"too often":   {nil, false, 0, 3, 429, "(429 Too Many Requests); a login or a mirror for HOST would help"},
		"later":       {map[string]string{"Retry-After": "120"}, false, 2 * time.Minute, 1, 429, "(429 Too Many Requests), and wants to be asked again in 2m0s; a login"},
		"at a time":   {map[string]string{"Retry-After": "Sun, 06 Nov 1994 09:00:00 GMT", "Date": "Sun, 06 Nov 1994 08:50:00 GMT"}, false, 10 * time.Minute, 1, 429, "in 10m0s"},
		"nonsense":    {map[string]string{"Retry-After": "soon", "RateLimit-Limit": "many"}, false, 0, 3, 429, "(429 Too Many Requests); a login"},
		"negative":    {map[string]string{"Retry-After": "-5"}, false, 0, 3, 429, "(429 Too Many Requests); a login"},
		"unavailable": {map[string]string{"Retry-After": "90"}, false, 90 * time.Second, 1, 503, "the registry is in trouble (503 Service Unavailable), and wants to be asked again in 1m30s"},
		"trouble":     {nil, false, 0, 3, 502, "the registry is in trouble (502 Bad Gateway)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			var asked atomic.Int64
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/v2/" {
					return false
				}
				asked.Add(1)
				for key, value := range test.header {
					w.Header().Set(key, value)
				}
				w.WriteHeader(test.refusal)
				_, _ = w.Write([]byte(hubRefusal))
				return true
			}
			user := ""
			if test.login {
				user = "alice"
			}
			_, err := as(t, reg.Host, user, "x").Resolve(t.Context(), imagetest.Reference(t, reg.Host+"/x"))
			imagetest.WantError(t, err, true, strings.ReplaceAll(test.words, "HOST", reg.Host))
			var e *source.ImageError
			if errors.As(err, &e); e.RetryAfter != test.after || asked.Load() != test.asked {
				t.Errorf("asked %d times, again in %s; want %d, %s", asked.Load(), e.RetryAfter, test.asked, test.after)
			}
		})
	}
}

func TestShortRetryAfterIsWaitedFor(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	ref := imagetest.Reference(t, reg.Push(t, "x", imagetest.Tiny(t, "x")))
	var asked atomic.Int64
	reg.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		if asked.Add(1) > 1 {
			return false
		}
		w.Header().Set("Retry-After", "1")
		return status(http.StatusTooManyRequests)(w, nil)
	}
	start := time.Now()
	if _, err := imagetest.Source().Resolve(t.Context(), ref); err != nil || time.Since(start) < time.Second {
		t.Errorf("%v, after %s", err, time.Since(start))
	}
	asked.Store(0)
	r := imagetest.Source()
	r.MaxRetryAfter = 900 * time.Millisecond
	_, err := r.Resolve(t.Context(), ref)
	imagetest.WantError(t, err, true, "wants to be asked again in 1s")
}

func TestSilentRegistryFailsInEveryRequest(t *testing.T) {
	t.Parallel()
	img := imagetest.Tiny(t, "x")
	config, err := img.ConfigName()
	must(t, err)
	silence := func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	}
	half := func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("{"))
		_ = http.NewResponseController(w).Flush()
		return silence(w, r)
	}
	for name, test := range map[string]struct {
		path   string
		answer func(http.ResponseWriter, *http.Request) bool
		words  string
	}{
		"ping":            {"/v2/", silence, "cannot be reached: it does not answer"},
		"token":           {"/token", silence, "cannot be reached: it does not answer"},
		"half a token":    {"/token", half, "cannot be reached: it does not answer"},
		"manifest":        {"/v2/x/manifests/latest", silence, "cannot be reached: it does not answer"},
		"half a manifest": {"/v2/x/manifests/latest", half, "is too slow: it sent 2 bytes a second in the last 500ms"},
		"configuration":   {"/v2/x/blobs/" + config.String(), silence, "cannot be reached: it does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			ref := imagetest.Reference(t, reg.Push(t, "x", img))
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == test.path {
					return test.answer(w, r)
				}
				if strings.HasSuffix(test.path, "token") {
					w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+reg.Host+`/token",service="x"`)
					return status(http.StatusUnauthorized)(w, r)
				}
				return false
			}
			r := imagetest.Source()
			r.Stall = 500 * time.Millisecond // of the parts before, on a busy machine, none may seem to be stalled
			resolved, err := r.Resolve(t.Context(), ref)
			if err == nil {
				_, err = source.Layers(t.Context(), r, resolved)
			}
			imagetest.WantError(t, err, true, test.words)
		})
	}
}

// trickle sends single bytes with pauses until the client is gone.
func trickle(each time.Duration) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		next := time.NewTicker(each)
		defer next.Stop()
		for {
			_, _ = w.Write([]byte("{"))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return true
			case <-next.C:
			}
		}
	}
}

// A registry that sends single bytes with pauses could do so for ever.
func TestTricklingRegistryFailsInEveryRequest(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"manifest", "configuration", "layer"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			img, layer, _ := noise(t, reg, "x", 1<<20)
			var trickled atomic.Int64
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				is := "layer"
				switch {
				case strings.Contains(r.URL.Path, "/manifests/"):
					is = "manifest"
				case !strings.Contains(r.URL.Path, "/blobs/"):
					return false
				case !strings.HasSuffix(r.URL.Path, layer.Digest.String()):
					is = "configuration"
				}
				if is != what {
					return false
				}
				trickled.Add(1)
				// Less than half of the minimum rate.
				return trickle(3*time.Millisecond)(w, r)
			}
			src := imagetest.Source()
			src.Stall = 100 * time.Millisecond
			_, err := source.ReadBlob(t.Context(), src, img, layer, 0)
			imagetest.WantError(t, err, true, "")
			sentence := `^image "` + reg.Host + `/x": .*registry ` + reg.Host + ` is too slow: it sent [1-9][0-9.]* bytes a second in the last 100ms$`
			if !regexp.MustCompile(sentence).MatchString(err.Error()) || trickled.Load() > 4 {
				t.Errorf("%v, after %d answers", err, trickled.Load())
			}
		})
	}
}

func TestTricklingMirrorIsLeftForTheRegistry(t *testing.T) {
	t.Parallel()
	upstream, mirror := imagetest.Start(t), imagetest.Start(t)
	img, layer, data := noise(t, upstream, "x", 1<<20)
	noise(t, mirror, "x", 1<<20)
	var trickled atomic.Int64
	mirror.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, layer.Digest.String()) {
			return false
		}
		trickled.Add(1)
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data[:100])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	}
	src := imagetest.Source()
	src.Stall = time.Second
	src.Hosts = map[string]source.Host{upstream.Host: {Mirrors: []string{mirror.Host}}}
	got, err := source.ReadBlob(t.Context(), src, img, layer, 0)
	if err != nil || !bytes.Equal(got, data) || trickled.Load() != 1 {
		t.Errorf("%d of %d bytes, %v, after %d answers of the mirror", len(got), len(data), err, trickled.Load())
	}
}

// A rate limit of the site is not the registry's fault.
func TestDelaysOfTheSourcesReaderAreNotTheRegistrys(t *testing.T) {
	t.Parallel()
	img, layer, data := noise(t, imagetest.Start(t), "x", 1<<20)
	src := imagetest.Source()
	src.Stall = time.Second
	src.Reader = func(_ context.Context, r io.Reader) io.Reader {
		var once sync.Once
		return readerFunc(func(p []byte) (int, error) {
			once.Do(func() { time.Sleep(src.Stall + 50*time.Millisecond) })
			return r.Read(p)
		})
	}
	got, err := source.ReadBlob(t.Context(), src, img, layer, 0)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d of %d bytes, %v", len(got), len(data), err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestEndlessRedirectionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ to, words string }{
		"circle":         {"/v2/x/manifests/latest", "cannot be used: it redirects in circles"},
		"cloud's secret": {"http://169.254.169.254/latest/meta-data", "cannot be used: 169.254.169.254 is not a public address"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/v2/" {
					return false
				}
				http.Redirect(w, r, test.to, http.StatusFound)
				return true
			}
			_, err := imagetest.Source().Resolve(t.Context(), imagetest.Reference(t, reg.Host+"/x"))
			imagetest.WantError(t, err, false, "registry "+reg.Host+" "+test.words)
		})
	}
}

func TestTooLargeOrCorruptConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	img := imagetest.Tiny(t, "x")
	manifest, err := img.Manifest()
	must(t, err)
	name := manifest.Config.Digest
	for what, test := range map[string]struct {
		config v1.Descriptor
		words  string
	}{
		"huge":     {v1.Descriptor{MediaType: types.DockerConfigJSON, Digest: name, Size: 5 << 20}, "its configuration is of 5242880 bytes, and at most 4194304 are handled"},
		"negative": {v1.Descriptor{MediaType: types.DockerConfigJSON, Digest: name, Size: -1}, "its configuration is of -1 bytes"},
		"longer":   {v1.Descriptor{MediaType: types.DockerConfigJSON, Digest: name, Size: manifest.Config.Size - 1}, "the registry has"},
		"corrupt":  {v1.Descriptor{MediaType: types.DockerConfigJSON, Digest: name, Size: 3, Data: []byte("{} ")}, "its configuration is corrupt"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			reg.Push(t, "x", img)
			m := manifest.DeepCopy()
			m.Config = test.config
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, "/manifests/") {
					return false
				}
				_ = json.NewEncoder(w).Encode(m)
				return true
			}
			ref := imagetest.Reference(t, reg.Host+"/x")
			resolved, err := imagetest.Source().Resolve(t.Context(), ref)
			must(t, err)
			_, err = source.Layers(t.Context(), imagetest.Source(), resolved)
			imagetest.WantError(t, err, false, test.words)
		})
	}
}

func TestRegistrysWordsSteerNoTerminal(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/v2/" {
			return false
		}
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"errors":[{"code":"DENIED","message":"no \u001b[2J\u009b2J\u202eimage\r\nhere"}]}`))
		return true
	}
	_, err := imagetest.Source().Resolve(t.Context(), imagetest.Reference(t, reg.Host+"/x"))
	imagetest.WantError(t, err, false, `the registry refuses: 400 Bad Request: no \u001b[2J\u009b2J\u202eimage here`)
}
