package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// getAll gets the objects of a document, with the related objects that include names.
func getAll[T any](ctx context.Context, c *Client, p string, query url.Values, include []string, read func(related, codalab.Object) (T, error)) ([]T, error) {
	doc, err := c.fetch(ctx, p, query, include)
	if err != nil {
		return nil, err
	}
	return decodeAll(doc, read)
}

// getOne gets the first object of a document, with the related objects that include names.
func getOne[T any](ctx context.Context, c *Client, p string, query url.Values, include []string, read func(related, codalab.Object) (T, error)) (one T, err error) {
	doc, err := c.fetch(ctx, p, query, include)
	if err != nil {
		return one, err
	}
	return decodeOne(doc, read)
}

// fetch gets a document, with the related objects that include names.
func (c *Client) fetch(ctx context.Context, p string, query url.Values, include []string) (codalab.Document, error) {
	if len(include) > 0 {
		if query == nil {
			query = url.Values{}
		}
		query.Set("include", strings.Join(include, ","))
	}
	var doc codalab.Document
	err := c.do(ctx, call{method: "GET", path: p, query: query, within: relayWithin}, &doc)
	return doc, err
}

// create sends a new object of a type and returns the server's object.
func create[T any](ctx context.Context, c *Client, kind string, query url.Values, attributes any, read func(related, codalab.Object) (T, error)) (one T, err error) {
	doc, err := c.post(ctx, kind, query, attributes)
	if err != nil {
		return one, err
	}
	return decodeOne(doc, read)
}

// post sends a list of new objects of one type, whose path has the type's name, and returns the answer.
func (c *Client) post(ctx context.Context, kind string, query url.Values, attributes ...any) (codalab.Document, error) {
	objects := make([]codalab.Object, 0, len(attributes))
	for _, a := range attributes {
		objects = append(objects, codalab.NewObject(kind, "", a))
	}
	return c.submit(ctx, http.MethodPost, "/"+kind, query, objects)
}

// submit sends objects to create (POST), change (PATCH) or remove (DELETE), and returns the answer.
// The server may pass the request on to a worker.
func (c *Client) submit(ctx context.Context, method, p string, query url.Values, objects []codalab.Object) (codalab.Document, error) {
	var doc codalab.Document
	err := c.do(ctx, call{method: method, path: p, query: query, json: codalab.NewDocument(objects), within: relayWithin}, &doc)
	return doc, err
}

// removal is the list of links of a DELETE call.
func removal(kind string, ids []string) []codalab.Object {
	objects := make([]codalab.Object, 0, len(ids))
	for _, id := range ids {
		objects = append(objects, codalab.Object{Type: kind, ID: id})
	}
	return objects
}

// related holds the objects that a document includes.
type related struct {
	objects map[codalab.Link]codalab.Object
	// known are the users that were read already, by id: thousands of bundles have a few owners.
	known *sync.Map
}

// newRelated returns the included objects of a document by their links.
func newRelated(included []codalab.Object) related {
	r := related{make(map[codalab.Link]codalab.Object, len(included)), new(sync.Map)}
	for _, o := range included {
		r.objects[codalab.Link{Type: o.Type, ID: o.ID}] = o
	}
	return r
}

// user returns a linked user; only its id is set if the user is not included.
func (r related) user(link codalab.Link) (codalab.User, error) {
	if known, ok := r.known.Load(link.ID); ok {
		return known.(codalab.User), nil //nolint:forcetypeassert // it has no others
	}
	u := codalab.User{ID: link.ID}
	var err error
	if included, ok := r.objects[link]; ok {
		u, err = readUser(r, included)
	}
	r.known.Store(link.ID, u)
	return u, err
}

// linked returns the included object that o's relationship links to, if there is one.
func (r related) linked(o codalab.Object, relationship string) (codalab.Object, bool) {
	link, ok := o.Relationships[relationship].Link()
	if !ok {
		return codalab.Object{}, false
	}
	found, ok := r.objects[link]
	return found, ok
}

// linkedList returns the included objects that o's relationship links to.
func (r related) linkedList(o codalab.Object, relationship string) []codalab.Object {
	var list []codalab.Object
	for _, link := range o.Relationships[relationship].Links() {
		if found, ok := r.objects[link]; ok {
			list = append(list, found)
		}
	}
	return list
}

func decodeAll[T any](doc codalab.Document, read func(related, codalab.Object) (T, error)) ([]T, error) {
	objects, err := doc.Objects()
	if err != nil {
		return nil, err
	}
	return readAll(newRelated(doc.Included), objects, read)
}

func decodeOne[T any](doc codalab.Document, read func(related, codalab.Object) (T, error)) (T, error) {
	list, err := decodeAll(doc, read)
	if err == nil && len(list) == 0 {
		err = errors.New("the server's answer holds no object")
	}
	if err != nil {
		var none T
		return none, err
	}
	return list[0], nil
}

// readAll reads the objects of a list. Several goroutines share a long one: encoding/json reads some 20 MB a second on a core,
// and ten thousand bundles are 5 MB.
func readAll[T any](r related, objects []codalab.Object, read func(related, codalab.Object) (T, error)) ([]T, error) {
	const shared, readers = 500, 4
	list := make([]T, len(objects))
	var group errgroup.Group
	group.SetLimit(readers)
	for first := 0; first < len(objects); first += shared {
		readPart := func() error {
			for i := first; i < min(first+shared, len(objects)); i++ {
				var err error
				if list[i], err = read(r, objects[i]); err != nil {
					return err
				}
			}
			return nil
		}
		if len(objects) > shared {
			group.Go(readPart)
		} else if err := readPart(); err != nil {
			return nil, err
		}
	}
	return list, group.Wait()
}
