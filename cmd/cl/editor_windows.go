package main

// defaultEditor edits texts where EDITOR names no other (codalab/lib/editor_util.py: find_default_editor).
const defaultEditor = "notepad"
