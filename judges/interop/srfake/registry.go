// Package srfake has the names of franz-go's srfake that its tests use, before a registry of fletchlog: FLETCHLOG_REGISTRIES opens a fresh one for each.
package srfake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

// Interceptor answers a request, or returns false.
type Interceptor func(w http.ResponseWriter, r *http.Request) bool

// Option is an option of New.
type Option func(*Registry)

// WithAuth is not served: registries of fletchlog ask for users.
func WithAuth(string) Option { return func(*Registry) {} }

// Registry is a registry behind a proxy, where a test can answer first.
type Registry struct {
	url  string
	ts   *httptest.Server
	icts []Interceptor
}

// New opens a registry.
func New(opts ...Option) *Registry {
	r := &Registry{}
	r.Reset()
	r.ts = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for _, i := range r.icts {
			if i(w, req) {
				return
			}
		}
		u, _ := url.Parse(r.url)
		httputil.NewSingleHostReverseProxy(u).ServeHTTP(w, req)
	}))
	for _, o := range opts {
		o(r)
	}
	return r
}

// Reset opens another registry, which is empty.
func (r *Registry) Reset() {
	resp, err := http.Post(os.Getenv("FLETCHLOG_REGISTRIES"), "text/plain", nil)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	r.url = string(b)
}

func (r *Registry) Handler() http.Handler   { return r.ts.Config.Handler }
func (r *Registry) Close()                  { r.ts.Close() }
func (r *Registry) URL() string             { return r.ts.URL }
func (r *Registry) Intercept(i Interceptor) { r.icts = append(r.icts, i) }
func (r *Registry) ClearInterceptors()      { r.icts = nil }
func (r *Registry) do(m, p string, body any) (int, []byte) {
	var rd io.Reader
	if body != nil {
		b, _ := json.Marshal(body)
		rd = bytes.NewReader(b)
	}
	req, _ := http.NewRequest(m, r.url+p, rd)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, b
}
func (r *Registry) put(p string, body any) error {
	s, b := r.do("PUT", p, body)
	if s != 200 {
		return fmt.Errorf("%s", b)
	}
	return nil
}
func (r *Registry) SeedSchema(subject string, version, id int, sch sr.Schema) {
	r.put("/mode/"+url.PathEscape(subject)+"?force=true", map[string]any{"mode": "IMPORT"})
	m := map[string]any{}
	b, _ := json.Marshal(sch)
	json.Unmarshal(b, &m)
	m["id"], m["version"] = id, version
	if s, b := r.do("POST", "/subjects/"+url.PathEscape(subject)+"/versions", m); s != 200 {
		panic(string(b))
	}
	r.do("DELETE", "/mode/"+url.PathEscape(subject), nil)
}
func (r *Registry) RegisterSchema(subject string, sch sr.Schema) (int, int, error) {
	s, b := r.do("POST", "/subjects/"+url.PathEscape(subject)+"/versions", sch)
	if s != 200 {
		return 0, 0, fmt.Errorf("%s", b)
	}
	var v struct{ ID, Version int }
	json.Unmarshal(b, &v)
	return v.ID, v.Version, nil
}
func (r *Registry) SetCompat(subject string, c sr.CompatibilityLevel) error {
	return r.put("/config"+sub(subject), map[string]any{"compatibility": c})
}
func (r *Registry) SetMode(subject string, m sr.Mode) error {
	return r.put("/mode"+sub(subject)+"?force=true", map[string]any{"mode": m})
}
func sub(s string) string {
	if s == "" {
		return ""
	}
	return "/" + url.PathEscape(s)
}
func (r *Registry) GetSchema(subject string, version int) (sr.SubjectSchema, bool) {
	s, b := r.do("GET", fmt.Sprintf("/subjects/%s/versions/%d", url.PathEscape(subject), version), nil)
	var v sr.SubjectSchema
	json.Unmarshal(b, &v)
	return v, s == 200
}
func (r *Registry) SubjectExists(subject string) bool {
	s, _ := r.do("GET", "/subjects/"+url.PathEscape(subject)+"/versions", nil)
	return s == 200
}
