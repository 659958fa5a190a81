// Package pages has the web pages of the bundle service: my runs, a bundle, a worksheet, queues. They are written on the
// server (html/template), can be read without scripts, and need nothing from elsewhere.
//
// A page is a client of the REST API, which it calls in this process as its reader (package selfcall). So a page
// shows nothing that its reader could not get by cl, and no permission is checked here. Markup of worksheets is the only text
// that is written as HTML; it is cleaned before (internal/markup). All else is escaped by html/template.
package pages
