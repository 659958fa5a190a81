package batchtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// parseFilter returns the predicate of a filter of OData over these fields, in the part of the language that the
// service documents for texts: startswith, eq, ne, and, or, parentheses ("OData filters in Batch").
func parseFilter(text string, fields ...string) (func(object) bool, error) {
	if strings.TrimSpace(text) == "" {
		return func(object) bool { return true }, nil
	}
	p := &parser{words: tokens.FindAllString(text, -1), fields: fields}
	if strings.Join(p.words, "") != strings.ReplaceAll(text, " ", "") {
		return nil, fmt.Errorf("the filter %q cannot be read", text)
	}
	keep := p.either()
	if p.err == nil && len(p.words) > 0 {
		p.err = fmt.Errorf("the filter %q goes on after its end", text)
	}
	return keep, p.err
}

var tokens = regexp.MustCompile(`[A-Za-z/]+|'[^' ]*'|[(),]`)

type parser struct {
	words, fields []string
	err           error
}

func (p *parser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	word := p.words[0]
	p.words = p.words[1:]
	return word
}

func (p *parser) accept(word string) bool {
	if len(p.words) == 0 || p.words[0] != word {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(word string) {
	if !p.accept(word) && p.err == nil {
		p.err = fmt.Errorf("the filter lacks %q", word)
	}
}

func (p *parser) either() func(object) bool {
	all := []func(object) bool{p.both()}
	for p.accept("or") {
		all = append(all, p.both())
	}
	return func(o object) bool { return slices.ContainsFunc(all, func(f func(object) bool) bool { return f(o) }) }
}

func (p *parser) both() func(object) bool {
	all := []func(object) bool{p.term()}
	for p.accept("and") {
		all = append(all, p.term())
	}
	return func(o object) bool { return !slices.ContainsFunc(all, func(f func(object) bool) bool { return !f(o) }) }
}

func (p *parser) term() func(object) bool {
	if p.accept("(") {
		inner := p.either()
		p.expect(")")
		return inner
	}
	if p.accept("startswith") {
		p.expect("(")
		field := p.field()
		p.expect(",")
		value := p.value()
		p.expect(")")
		return func(o object) bool { return strings.HasPrefix(fmt.Sprint(o[field]), value) }
	}
	field, operator := p.field(), p.next()
	value := p.value()
	if operator != "eq" && operator != "ne" && p.err == nil {
		p.err = fmt.Errorf("the filter has the operator %q", operator)
	}
	return func(o object) bool { return (fmt.Sprint(o[field]) == value) == (operator == "eq") }
}

func (p *parser) field() string {
	field := p.next()
	if !slices.Contains(p.fields, field) && p.err == nil {
		p.err = fmt.Errorf("the filter has the field %q", field)
	}
	return field
}

func (p *parser) value() string {
	value := p.next()
	if (len(value) < 2 || value[0] != '\'') && p.err == nil {
		p.err = fmt.Errorf("the filter has the value %q", value)
	}
	return strings.Trim(value, "'")
}
