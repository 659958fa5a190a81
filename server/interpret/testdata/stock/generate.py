#!/usr/bin/env python3
"""Writes the *.json files beside it: what CodaLab's own code answers to the inputs below.

usage: PYTHONPATH=<site with marshmallow 2.15.1>:<codalab-worksheets> generate.py

The inputs are written for these tests. TestStock in server/interpret compares with them.
"""
import base64
import io
import json
import os
import sys
import tempfile
import types

from codalab.common import NotFoundError, PermissionError, UsageError
from codalab.lib import canonicalize, formatting, worksheet_util as wu
from codalab.rest import interpret
from codalab.worker import file_util
from codalab.worker.download_util import BundleTarget

HERE = os.path.dirname(os.path.abspath(__file__))


def save(name, cases):
    with open(os.path.join(HERE, name + '.json'), 'w') as out:
        cases = json.loads(json.dumps(cases))  # keys become texts
        json.dump(cases, out, indent=1, sort_keys=True, allow_nan=False)
        out.write('\n')


def uuid(n):
    return '0x%032x' % n


# Post-functions.
POST = [
    ('size', [0, 5, 99.5, 100.5, 1023, 1024, 1536, 8194, 12296, 102400, 123456789, 1e12, 2e15, '2048', 'x', None, True, -5.5, [], '1e3']),
    ('duration', [0, 0.04, 4.0, 59.99, 60, 100, 3599, 3600, 10000, 86399, 86400, 1e5, 31535999, 31536000, 1e9, -5, -61, '12', None, 'y']),
    ('date', [0, 1795161770, 1795161770.5, 0.000001, -1, '1795161770', None, 'no', 1e18]),
    ('%.3f', [1, 0.5, '2.25', None, 'a', 1234567.89012, -0.0]),
    ('%d', [1, 1.9, -1.9, 1e20, '3']), ('%5d|', [7]), ('%-5d|', [7]), ('%05d', [7, -7]), ('%+d', [7]), ('% d', [7]), ('%.3d', [7]), ('%i items', [3]), ('%u', [3]),
    ('%e', [12345.678]), ('%.2E', [12345.678]), ('%g', [0.0001, 0.00001, 123456, 1234567, 1e21, 100]), ('%.3g', [1234.5]), ('%G', [1e-7]), ('%#g', [1.5]), ('%F', [1.5]),
    ('%s', [1, 1.5, '7', 1e16, 1e-5]), ('%5.1s|', [1.5]), ('%r', [2]), ('%a', [2]), ('%%', [1]), ('%', [1]), ('%f%%', [1]), ('%.1f of %%', [12.34]), ('%f %f', [1]), ('%q', [1]), ('%x', [10]), ('%c', [65]),
    ('%(a)s', [1]), ('%*d', [1]), ('%lf', [1]), ('%.f', [1.5, 2.5]), ('%.0g', [123]), ('%10.2f|', [3.14159]),
    ('[0:3]', ['abcdef', 'ab', '', None, 5, [1, 2, 3, 4], {'a': 1}, 'äöüß']), ('[2:]', ['abcdef', None]), ('[:-1]', ['abcdef', '']), ('[-3:]', ['abcdef', 'ab']), ('[-3:-5]', ['abcdef']), ('[4:2]', ['abcdef']),
    ('[:]', ['abc']), ('[a:b]', ['abc']), ('[0:2]tail', ['abc']), ('[0]', ['abc']), ('[ 1 : 2 ]', ['abc']), ('[100:200]', ['abc']),
    ('s/a/b', ['banana', 'xyz', '', 5, None, ['a']]), ('s/a/', ['banana']), ('s/a/b/', ['a']), ('s/a', ['a']), ('s/(a)(n)/\\2\\1', ['banana']), ('s/(?P<x>n)/<\\g<x>\\g<1>\\g<0>>', ['banana']),
    ('s/\\/usr\\/lib/\\/opt', ['/usr/lib/x']), ('s/x*/-', ['abc']), ('s/(b)?a/[\\1]', ['aba']), ('s/a/\\3', ['a']), ('s/a/\\n', ['ab']), ('s/a/\\q', ['ab']), ('s/a/\\.', ['ab']), ('s/(/b', ['a(']), ('s/^.*\\.//', ['a.b.c']), ('s/^.*\\./', ['a.b.c']), ('s/$/!', ['a']), ('s/(?i)A/b', ['aA']), ('s/[^0-9]+/_', ['a1b22c']), ('s/ä/ae', ['äb']),
    ('str', [1, 1.0, True, None, 'x', [1, 'a', None, 2.5], {'k': "it's"}, ['"', "'", '\n', '\\', 'é']]),
    ('str | [0:3]', [123456, 1.25]), ('size | s/ bytes/B', [5, 2048]), ('%.2f | s/\\./,', [3.14159]), ('add k v', [{'a': 1}, 5, 'x', None, [], 1.5, True]), ('add k', [{'a': 1}, 2]), ('add k v w', [{'a': 1}]), ('key k', [5, None, 'x']), ('key k | add l m', [5]), ('key', [1]),
    ('bool', [1]), ('', [1, 'a']), ('size|str', [1]), (' size', [1]), ('duration | ', [61]), (None, [1, None, 'a', [1]]),
    ('s/a/b | nonsense', ['a']), ('size | size', [5, 2048]), ('str | str', [2]),
]


def post_cases():
    for func, args in POST:
        for arg in args:
            given = json.loads(json.dumps(arg))
            yield {'post': func, 'arg': arg, 'want': wu.apply_func(func, given)}


# Words.
WORDS = ['', 'a b', "a 'b c' d", 'a "b c" d', r'a\ b c', r'"a\"b" "a\b" "a\\b"', r"'a\b'", "a''b ''", '"" x', 'a\tb\rc\nd', "it's", '"open', 'end\\', "a#b # c", '  pad  ', 'ä ö', "don'\"'\"'t", 'x=1;rm', '$HOME `id`', '% c']


def word_cases():
    for text in WORDS:
        case = {'text': text}
        try:
            case['tokens'] = formatting.string_to_tokens(text)
            case['joined'] = formatting.tokens_to_string(case['tokens'])
        except ValueError as e:
            case['error'] = str(e)
        yield case


# The form. Bundles are named b1 to b9, worksheets w1 to w9.
FORM = [
    '', ' ', 'hello', '# Title', '// a comment', '//', '//  spaced  ', '%% also a comment', '%%', '% % x', '%', '% ', ' % display table name ', '%display   table  name', '% add "two words" /a:b %.3f',
    '{b1}', '[run x]{b2}', '  [a]b]{ b1 }  ', '[x] {b1}', 'x {b1}', '{b1} x', '{}', '[]{b1}', '[run x -- a:b : echo {}]{b1}', '[{x}]{b1}', '{b1}}', '{{w1}}', '[worksheet x]{{w1}}', '{{ w2 }}', '{{nope}}', '{{}}', '{{w1}', '[[a]]{{w1}}', '[a](http://x){b1}', '[a]{b1}{b2}',
    '\t{b1}\r', '\u00a0% display table', '\u2003{b1}', "% schema it\\'s", '% search b1 .limit=3', 'a%b', '100 %', '/ /', 'not // comment',
]


def resolve_bundle(model, user, worksheet, spec):
    spec = spec.strip()
    if len(spec) == 2 and spec[0] == 'b':
        return uuid(int(spec[1]))
    raise UsageError('no bundle ' + spec)


def resolve_worksheet(model, user, worksheet, spec):
    spec = spec.strip()
    if len(spec) == 2 and spec[0] == 'w':
        return uuid(100 + int(spec[1]))
    raise UsageError('no worksheet ' + spec)


def form_cases():
    canonicalize.get_bundle_uuid = resolve_bundle
    canonicalize.get_worksheet_uuid = resolve_worksheet
    for line in FORM:
        case = {'line': line}
        try:
            items = wu.parse_worksheet_form([line], None, None, None)
            bundle, sheet, value, kind = wu.convert_item_to_db(items[0])
            case['item'] = {'bundle': bundle or '', 'worksheet': sheet or '', 'value': value, 'type': kind}
            case['back'] = wu.get_worksheet_lines({'items': items})[0]
        except UsageError as e:
            case['error'] = str(e)
        yield case


# Files.
FILES = {
    'json': '{"a": {"b": [1, 2.0, "x", null, true, 1e3]}, "big": 123456789012345678901234567890, "f": 0.1}',
    'number': '5\n', 'float': '5.0\n', 'text': 'hello world\n', 'lines': 'one\ntwo\n', 'paragraphs': 'a: b: c\nd\n', 'empty': '', 'blank': '\n\n',
    'yaml': 'a: 1\nb:\n  - x\n  - y: [1, 2]\nc: yes\nd: 1e-3\ne: 1.5e+3\nf: 0x1F\ng: 017\nh: ~\ni: "1"\nj: .5\nk: 1_000\nl: +12\nm: !!str 5\n1: int key\nn: |\n  block\n  text\no: off\np: 1.\nq: -1.5\n',
    'anchors': 'base: &b {x: 1, y: 2}\nmore:\n  <<: *b\n  y: 3\nlist: [*b, *b]\nmany:\n  <<: [{x: 5}, {x: 6, z: 7}]\n',
    'documents': 'a: 1\n---\nb: 2\n', 'tag': 'a: !python/name:os.system {}\n', 'complex': '? [1, 2]\n: x\n', 'twice': 'a: 1\na: 2\n',
    'tabs': 'a\t1\nb\tx y\nc\t\n\td\n', 'sometabs': 'a\t1\nb 2\n', 'tab1': 'key\tv1\tv2\n', 'cr': 'a: 1\r\nb: 2\r\n', 'separators': 'a\x0bb\x0cc\u2028d\n',
    'nonewline': 'x: 1', 'colon': 'http://x/y\n', 'open': '{"a": 1', 'quoted': '"text"\n', 'listtext': '- a\n- b\n', 'jsonlist': '[1, [2, 3]]', 'unicode': 'k: äö\n', 'jsonl': '{"a": 1}\n{"a": 2}\n', 'star': '* a\n* b\n', 'percent': '%x\n', 'tabindent': 'a:\n\tb: 1\n',
    'dup': '{"a": 1, "a": 2}', 'exp': 'x: 1e5\ny: 1E+5\nz: 1.0e5\n',
}
KEYS = ['', 'a', 'a/b', 'a/b/0', 'a/b/1', 'a/b/-1', 'a/b/x', 'a/b/5', 'b/1/y', 'b/1/y/1', 'c', 'd', 'e', 'key', 'more', 'list/1', 'x', 'big', 'f', '0']
BINARY = b'\xff\xfe\x00binary\n'


class Model:
    """Stands for the server: bundles, users and files."""

    root_user_id = '0'

    def __init__(self, bundles, files):
        self.bundles, self.files = bundles, files

    def get_user(self, user_id=None):
        return types.SimpleNamespace(user_name='user' + user_id)

    def search_bundles(self, user_id, keywords):
        if '.count' in keywords:
            return {'result': 3, 'is_aggregate': True}
        return {'result': [b['uuid'] for b in self.bundles[:2]], 'is_aggregate': False}

    def get_worksheet(self, sheet, fetch_items):
        if sheet != uuid(101):
            raise NotFoundError('no worksheet')
        return types.SimpleNamespace(to_dict=lambda: sheet_info(sheet, 'other'))

    def get_target_info(self, target, depth):
        if target.bundle_uuid == uuid(9):
            raise PermissionError('forbidden')
        if target.subpath == 'dir':
            return {'type': 'directory', 'resolved_target': target}
        if target.subpath == 'link':
            return {'type': 'link', 'resolved_target': target}
        if target.subpath not in self.files:
            raise NotFoundError('no file')
        return {'type': 'file', 'resolved_target': target}

    def summarize_file(self, target, *args, gzipped):
        with tempfile.NamedTemporaryFile() as f:
            f.write(self.files[target.subpath])
            f.flush()
            return file_util.summarize_file(f.name, *args).encode()

    def stream_file(self, target, gzipped):
        return io.BytesIO(self.files[target.subpath])


def sheet_info(sheet, name):
    return {
        'uuid': sheet, 'name': name, 'owner_id': '0', 'title': None, 'frozen': None, 'is_anonymous': False,
        'date_created': '2026-11-20T08:02:45', 'date_last_modified': '2026-11-20T08:03:06', 'tags': ['t'], 'last_item_id': 7,
    }


def install(model):
    interpret.local = types.SimpleNamespace(model=model, download_manager=model, config={})
    interpret.rest_util.check_target_has_read_permission = lambda target: None
    interpret.rest_util.get_target_info = model.get_target_info
    interpret.rest_util.resolve_owner_in_keywords = lambda keywords: keywords
    interpret.rest_util.get_bundle_infos = lambda uuids, **k: {b['uuid']: b for b in model.bundles if b['uuid'] in uuids}
    interpret.search_worksheets = lambda keywords: [dict(sheet_info(uuid(101), 'other'), owner_name='user0')]


def file_cases():
    files = {name: text.encode() for name, text in FILES.items()}
    files['binary'] = BINARY
    install(Model([], files))
    for name in list(files) + ['missing', 'dir', 'link']:
        for key in KEYS:
            genpath = '/' + name + (':' + key if key else '')
            try:
                want = interpret.interpret_file_genpaths([(uuid(1), genpath, None)])[0]
                json.dumps(want)
            except (IndexError, TypeError):
                continue  # CodaLab's own server fails
            yield {'genpath': genpath, 'want': want}


# Bundles.
def bundles():
    meta = {'name': 'x', 'description': 'd', 'tags': ['p', 'q'], 'created': 1795161770, 'data_size': 8194}
    run = dict(meta, time=4.0, request_cpus=1, request_network=True, memory=12345678, exitcode=0)

    def dep(n, child, path='', name='x'):
        return {'child_uuid': uuid(3), 'child_path': child, 'parent_uuid': uuid(n), 'parent_path': path, 'parent_name': name}

    common = {'frozen': None, 'is_anonymous': False, 'location': None, 'state_details': 'ok', 'args': None, 'permission': 2, 'owner_id': '0', 'command': None, 'state': 'ready', 'dependencies': []}
    known = [
        dict(common, uuid=uuid(1), bundle_type='dataset', metadata=meta),
        dict(common, uuid=uuid(2), bundle_type='dataset', metadata=dict(meta, name='y'), state='uploading', host_worksheet={'uuid': uuid(101), 'name': 'other'}),
        dict(common, uuid=uuid(3), bundle_type='run', metadata=run, command='echo a\n | cat', dependencies=[dep(1, 'x'), dep(2, 'k', 'p/q', 'y')]),
        dict(common, uuid=uuid(4), bundle_type='run', metadata=run, command='y' * 1100, state='running', dependencies=[dep(1, '', 'sub')], permission=1),
        dict(common, uuid=uuid(5), bundle_type='make', metadata=meta, dependencies=[dep(1, 'x'), dep(2, 'k', '', 'y')]),
        dict(common, uuid=uuid(6), bundle_type='make', metadata=meta, dependencies=[dep(1, '')], permission=0),
        {'uuid': uuid(7), 'bundle_type': 'private', 'owner_id': None, 'command': None, 'state': None, 'frozen': None, 'is_anonymous': False, 'metadata': {'name': '<private>'}, 'args': None, 'dependencies': [], 'location': None, 'permission': 0, 'state_details': ''},
    ]
    return [dict(b, args=wu.interpret_genpath(b, 'args')) for b in known]


GENPATHS = ['uuid', 'name', 'state', 'dependencies', 'dependencies/x', 'dependencies/k', 'dependencies/', 'dependencies/no', 'args', 'summary', 'permission', 'owner', 'owner_id', 'command', 'created', 'time', 'tags', 'metadata', 'bundle_type', 'frozen', 'is_anonymous', 'nothing', 'host_worksheet', 'exitcode', 'request_network', 'memory', '']


def genpath_cases():
    model = Model(bundles(), {})
    for b in bundles():
        for genpath in GENPATHS:
            if genpath == 'owner' and b['owner_id'] is None:
                continue  # CodaLab's own server fails
            yield {'bundle': b, 'genpath': genpath, 'want': wu.interpret_genpath(b, genpath, db_model=model, owner_cache={})}


# Worksheets, as their lines. A bundle's line is {bN}: 8 does not exist, and the files of 9 are forbidden.
WORKSHEETS = {
    'plain': ['# Title', 'more', '', 'next', '{b1}', '{b2}', '', '{b3}', 'after', '{{w1}}', '{{w2}}', '// comment', 'end', ''],
    'empty': [],
    'blank': ['', '', '% display table'],
    'schema': ['% schema s', '% add uuid uuid [0:8]', '% add name', '% add /stats:a/b', '% add out /text "[0:3]"', '% addschema run', '', '% schema t', '% addschema s', '% add memory memory size', '% display table t', '{b3}', '{b4}', '% display table s t x:name', '{b1}', '% schema last'],
    'records': ['% display record', '{b1}', '{b3}', '% display record run /stats:a time:time:duration', '{b3}', '{b8}'],
    'contents': ['% display contents /text', '{b1}', '{b8}', '% display contents /long maxlines=3', '{b1}', '% display contents /dir', '{b1}', '% display contents /missing', '{b1}', '% display contents /binary', '{b1}', '% display contents /link', '{b1}'],
    'images': ['% display image /binary', '{b1}', '% display image /binary width=10 height=x', '{b1}', '{b2}', '% display image /missing', '{b1}', '% display image /dir', '{b1}'],
    'graphs': ['% display graph /points xlabel=step ylabel="the loss" maxlines=2', '{b1}', '{b2}', '% display graph /missing display_name=uuid', '{b1}', '{b8}'],
    'mistakes': ['% display contents', '{b1}', 'lost', '', 'kept', '% display contents text', '{b1}', '', '% display contents /text x', '{b1}', '', '% display contents /text maxlines=x', '{b1}', '', '% display odd', '{b1}', '', '% odd', '% add x', '% addschema', '% schema', '% schema s', '% add', '% add a b c d', '% schema s', '% addschema', 'end'],
    'lastmistake': ['x', '% display odd', '{b1}'],
    'missing': ['{b1}', '{b8}', '{b7}', '% display record name nothing', '{b8}', '% display hidden', '{b1}', 'x'],
    'searches': ['% search x', '% display table name owner', '% search y', '', '% search .count', '% wsearch z', '{b3}', '% search nothing'],
    'forbidden': ['% display table name /text', '{b9}', '% display graph /text display_name=state', '{b1}'],
    'order': ['{b1}', '{{w1}}', '{b1}', 'text', '{{w1}}', '{{w1}}', '% display table name', '% display table uuid', '{b1}', 'a', '% % c', 'b', '', '', 'c'],
    'comments': ['% schema s', '% add name', '% ', '% add uuid', '// x', '% schema t', '% add x', '// y', '{b1}'],
    'files': ['% display table name /stats:a/b /stats:f:%.2f /text /dir /missing /json:a/b/0 /lines', '{b1}', '{b3}'],
}
SHEET_FILES = {'text': b'hello\n', 'stats': b'a:\n  b: 0.25\nf: 3.14159\n', 'long': b'1\n2\n3\n4\n5', 'binary': BINARY, 'points': b'1\t2\n3\t4\n5\t6\n', 'json': FILES['json'].encode(), 'lines': b'one\ntwo\n'}


def worksheet_cases():
    known = bundles() + [dict(bundles()[0], uuid=uuid(9))]
    model = Model(known, SHEET_FILES)
    install(model)
    for name, lines in WORKSHEETS.items():
        items = []
        for i, item in enumerate(wu.parse_worksheet_form(lines, None, None, None)):
            bundle, sheet, value, kind = wu.convert_item_to_db(item)
            items.append({'bundle_uuid': bundle, 'subworksheet_uuid': sheet, 'value': value, 'type': kind, 'id': i + 1, 'sort_key': 10 * i})
        queries = ['', 'brief=1']
        if name == 'searches':
            queries += ['directive=search y', 'directive=wsearch z', 'directive=search .count', 'directive=search none']
        if name in ('plain', 'records', 'contents'):
            queries += ['bundle_uuid=' + uuid(3), 'bundle_uuid=' + uuid(1)]
        for query in queries:
            key, _, value = query.partition('=')
            interpret.request = types.SimpleNamespace(
                user=types.SimpleNamespace(user_id='0'),
                query=types.SimpleNamespace(get=lambda k, d=None: value if k == key else d, getall=lambda k: [value] if k == key else []),
            )
            info = dict(sheet_info(uuid(100), 'sheet'), permission=2, items=json.loads(json.dumps(items)), group_permissions=[{'id': 11, 'group_uuid': uuid(50), 'group_name': 'public', 'permission': 1}])
            interpret.get_worksheet_info = lambda *args, **kw: info
            model.bundles = json.loads(json.dumps(known))
            answer = interpret.fetch_interpreted_worksheet(uuid(100))
            yield {'name': name, 'query': query, 'items': items, 'want': answer}


if __name__ == '__main__':
    save('post', list(post_cases()))
    save('words', list(word_cases()))
    save('form', list(form_cases()))
    save('files', {'files': {n: base64.b64encode(t.encode()).decode() for n, t in FILES.items()} | {'binary': base64.b64encode(BINARY).decode()}, 'cases': list(file_cases())})
    save('genpaths', list(genpath_cases()))
    save('worksheets', {'bundles': bundles() + [dict(bundles()[0], uuid=uuid(9))], 'files': {n: base64.b64encode(t).decode() for n, t in SHEET_FILES.items()}, 'cases': list(worksheet_cases())})
