#!/usr/bin/env python3
"""Writes the *.json files beside it: the texts that Python gives to values.

usage: generate.py

TestPython… in package codalab compare with them.
"""
import json
import os
import random
import struct
import sys
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))

# JSON texts. The keys of each dict are sorted, as package codalab prints them.
VALUES = [
    'null', 'true', 'false', '0', '-0', '1', '-1', '42', '4.0', '-0.0', '0.0', '1.5', '0.1', '1e5', '1E5', '1e+5', '100000.0',
    '0.0001', '0.00001', '1e-05', '0.00012345', '9.999e-05', '1e15', '1e16', '1.0e16', '9999999999999998.0', '9999999999999999.0',
    '10000000000000000', '10000000000000000.0', '123456789012345678901234567890', '-123456789012345678901234567890',
    '1.7976931348623157e308', '1e400', '-1e400', '5e-324', '2.5e-324', '1e-400', '1e22', '1e23', '9007199254740993', '9007199254740993.0',
    '3.141592653589793', '2.675', '1e100', '123456.789e3', '0.3', '0.30000000000000004', '1e-7', '-1e-7', '12345678901234567.0',
    '""', '"a"', '" "', r'"it\u0027s"', r'"\""', r'"\u0027\""', r'"\\"', r'"\\\u0027"', r'"a\nb"', r'"\t"', r'"\r"', r'"\r\n"', r'"\u0000"',
    r'"\u0001\u0007\u0008\u000b\u000c\u001b\u001f"', r'"\u007f"', r'"\u0080\u009f"', r'"\u00a0"', r'"\u00ad"', r'"\u00e4\u00f6\u00fc\u00df"',
    r'"\u0378"', r'"\u0600"', r'"\u200b\u200e"', r'"\u2028\u2029"', r'"\u3000"', r'"\ue000"', r'"\ufeff"', r'"\ufffd"', r'"\uffff"',
    r'"\ud83d\ude00"', r'"\ud834\udd73"', r'"\udb40\udc01"', r'"\udbff\udfff"', r'"\u4f60\u597d"', '"/"', r'"\/"', '"None"', '"<b>&amp;"', '"$(x) `y` %s {}"',
    '[]', '{}', '[null]', '[[], {}]', '[true, false, null]', '[1, 1.0, "1"]', r'["a", "it\u0027s", "\"", "\n"]', '[[1, [2, [3.5]]]]',
    '{"a": null}', '{"a": true, "b": [1, 2.0, "x"]}', r'{"": "", "\u0027": 1, "k\n": {"z": {}}}', '{"1": 1, "a": {"b": {"c": [null, {"d": 1e-05}]}}}',
    '["0.00001", 0.00001, 1e16, -0.0]', r'[{"exit": 0, "host": "node\r"}, {"exit": null}]',
]


def save(name, content, indent=1):
    with open(os.path.join(HERE, name + '.json'), 'w') as out:
        json.dump(content, out, indent=indent, sort_keys=True, allow_nan=False)
        out.write('\n')


def texts():
    cases = []
    for text in VALUES:
        value = json.loads(text)
        cases.append({'json': text, 'str': str(value), 'repr': repr(value), 'type': type(value).__name__})
    return cases


def floats():
    """Floats by their bits: those at the borders of a form, those of each power of ten, and any."""
    some = [0.0, -0.0, float('inf'), float('-inf'), float('nan')]
    for exponent in range(-330, 310):
        some.append(float('1e%d' % exponent))
        some.append(float('-9.87654321e%d' % exponent))
    for border in (1e-4, 1e-5, 1e15, 1e16, 1e17, 2.0 ** 53, 2.0 ** 63, sys.float_info.min, sys.float_info.max):
        bits, = struct.unpack('>Q', struct.pack('>d', border))
        some += [struct.unpack('>d', struct.pack('>Q', bits + by))[0] for by in (-2, -1, 0)]
    chance = random.Random(1)
    some += [struct.unpack('>d', struct.pack('>Q', chance.getrandbits(64)))[0] for _ in range(500)]
    some += [round(chance.uniform(-1e6, 1e6), chance.randrange(8)) for _ in range(200)]
    return {'%016x' % struct.unpack('>Q', struct.pack('>d', f)): repr(f) for f in some}


def ranges(holds):
    """The characters for which holds is true, as pairs of the first and the last of a range. Surrogates
    are left out: a text in Go has none."""
    found, begin = [], None
    for c in range(sys.maxunicode + 2):
        if c <= sys.maxunicode and not 0xd800 <= c < 0xe000 and holds(chr(c)):
            begin = c if begin is None else begin
        elif begin is not None:
            found.append([begin, c - 1])
            begin = None
    return found


def characters():
    return {
        'unicode': unicodedata.unidata_version,
        'printable': [part for pair in ranges(str.isprintable) for part in pair],
        'unassigned': [part for pair in ranges(lambda c: unicodedata.category(c) == 'Cn') for part in pair],
    }


save('texts', texts())
save('floats', floats())
save('characters', characters(), indent=None)
