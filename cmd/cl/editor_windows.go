package main

// defaultEditor is the editor if EDITOR is not set (codalab/lib/editor_util.py: find_default_editor).
const defaultEditor = "notepad"
