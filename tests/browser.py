"""What a browser makes of tools/viewer.html: browser.py TRAIN BENCH REPLAY RESULTS

Opens pages of `--html`, and files in the viewer, in a headless Chromium, and asks what a reader gets:
the numbers of the files, by day and by night, on a telephone, by keys alone, by a screen reader.
tests/check_page.py judges what a page holds. Output: TAP.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

try:
    import selenium.webdriver
    import selenium.webdriver.chrome.service
    from selenium.webdriver.common.keys import Keys
except ImportError as missing:
    print(f'1..0 # SKIP {missing}: the Debian packages is python3-selenium')
    sys.exit(0)

BENCH_REPORT = pathlib.Path(__file__).resolve().parents[1] / 'bench' / 'report.py'
WIDTHS = {'telephone': 400, 'tablet': 768, 'desk': 1280}

# Each piece of text that can be seen: its words, its rectangle, its colour, what it stands on, its
# size. Rectangles are those of the text itself, not of the element around it.
TEXTS = '''
const found = [], walk = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
const solid = c => c && !/rgba\\(.*, 0\\)|transparent/.test(c);
while (walk.nextNode()) {
    const node = walk.currentNode, e = node.parentElement, s = getComputedStyle(e);
    if (!node.data.trim() || /^(style|title|script)$/i.test(e.tagName) || !e.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    let under = e, clip = null;
    while (under && !solid(getComputedStyle(under).backgroundColor)) under = under.parentElement;
    for (let o = e; o && !clip; o = o.parentElement)
        if (/hidden|auto/.test(getComputedStyle(o).overflowX)) clip = o.getBoundingClientRect();
    for (const r of range.getClientRects()) found.push({text: node.data.trim(), left: Math.max(r.left, clip ? clip.left : r.left),
        right: Math.min(r.right, clip ? clip.right : r.right), top: r.top, bottom: r.bottom,
        size: parseFloat(s.fontSize), color: e.ownerSVGElement ? s.fill : s.color,
        under: under ? getComputedStyle(under).backgroundColor : 'rgb(255, 255, 255)'});
}
return found'''


class Browser:
    """A Chromium without a window, and without a network."""

    def __init__(self):
        options = selenium.webdriver.ChromeOptions()
        options.binary_location = shutil.which('chromium')
        for switch in ('headless=new', 'no-sandbox', 'disable-gpu', 'disable-dev-shm-usage'):
            options.add_argument('--' + switch)
        options.set_capability('goog:loggingPrefs', {'performance': 'ALL', 'browser': 'ALL'})
        service = selenium.webdriver.chrome.service.Service(shutil.which('chromedriver'))
        self.driver = selenium.webdriver.Chrome(service=service, options=options)

    def command(self, name, **what):
        return self.driver.execute_cdp_cmd(name, what)

    def run(self, script, *what):
        return self.driver.execute_script(script, *what)

    def open(self, path, width=1280, night=False):
        self.command('Emulation.setDeviceMetricsOverride', width=width, height=800,
                     deviceScaleFactor=1, mobile=width < 700)
        self.command('Emulation.setEmulatedMedia', features=[
            {'name': 'prefers-color-scheme', 'value': 'dark' if night else 'light'}])
        self.driver.get(pathlib.Path(path).as_uri())

    def texts(self):
        return self.run(TEXTS)

    def press(self, *keys):
        for key in keys:
            selenium.webdriver.ActionChains(self.driver).send_keys(key).perform()

    def requests(self):
        messages = [json.loads(m['message'])['message'] for m in self.driver.get_log('performance')]
        return [m['params']['request']['url'] for m in messages
                if m['method'] == 'Network.requestWillBeSent']

    def tree(self):
        """What a screen reader is given: (role, name), level by level."""
        nodes = self.command('Accessibility.getFullAXTree')['nodes']
        return [(n['role']['value'], n.get('name', {}).get('value', ''))
                for n in nodes if not n['ignored']]

    def add(self, *files):
        """Open files in the page that is shown; returns when they are."""
        self.driver.find_element('id', 'open').send_keys('\n'.join(map(str, files)))
        shown = f"return document.getElementById('files').textContent.includes('{files[-1].name}')"
        while not self.run(shown):
            time.sleep(0.05)

    def text(self, selector):
        return self.run('return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)',
                        selector)

    def values(self, selector='main'):
        """(key, value, what is read) of each figure, those of closed tables, too."""
        return self.run('''
            document.querySelectorAll('details').forEach(d => { d.open = true; });
            return new Promise(done => setTimeout(() => done([...document.querySelectorAll(
                `:is(${arguments[0]}) data[data-key]`)].map(d => [d.dataset.key, d.getAttribute('value'),
                d.textContent])), 100))''', selector)


def rgb(text):
    return tuple(float(x) for x in text[text.index('(') + 1:-1].split(',')[:3])


def contrast(one, other):
    """WCAG 2.2's ratio of two colours: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio"""
    def luminance(colour):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
                  for c in (x / 255 for x in rgb(colour))]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def overlapping(texts):
    """Pairs of texts of which one is painted over the other; a pixel may be shared."""
    return [(a['text'], b['text']) for i, a in enumerate(texts) for b in texts[:i]
            if min(a['right'], b['right']) - max(a['left'], b['left']) > 1
            and min(a['bottom'], b['bottom']) - max(a['top'], b['top']) > 4]


class Cases:
    """Cases in TAP; what a case returns is what it found wrong."""

    def __init__(self):
        self.count, self.failed = 0, 0

    def check(self, name, wrong):
        self.count += 1
        self.failed += bool(wrong)
        print('not ok' if wrong else 'ok', self.count, '-', name)
        for line in list(wrong)[:10] if wrong else []:
            print('#', line)


def layouts(cases, browser, page, what):
    for device, width in WIDTHS.items():
        for night in (False, True):
            browser.open(page, width, night)
            texts = browser.texts()
            name = f'{what}_on_a_{device}_by_{"night" if night else "day"}'
            cases.check(name + '_has_all_text_in_its_width', [
                t for t in texts if t['left'] < 0 or t['right'] > width + 0.5])
            cases.check(name + '_has_nothing_painted_over', overlapping(texts))
            cases.check(name + '_has_text_that_can_be_read', [
                t for t in texts if t['size'] < 12 or contrast(t['color'], t['under']) < 4.5])
            cases.check(name + '_has_no_sideways_scrolling', [] if browser.run(
                'return document.documentElement.scrollWidth <= innerWidth') else ['it scrolls'])
    browser.open(page, night=True)
    night = browser.run('return getComputedStyle(document.body).backgroundColor')
    browser.open(page)
    day = browser.run('return getComputedStyle(document.body).backgroundColor')
    cases.check(what + '_is_dark_at_night', [] if max(rgb(night)) < 64 and min(rgb(day)) > 192
                else [f'{day} and {night}'])


def flatten(value, path, out):
    if isinstance(value, dict) and 'columns' not in value:
        for key, inner in value.items():
            flatten(inner, f'{path}.{key}' if path else key, out)
    elif not isinstance(value, (dict, list)):
        out[path] = value
    return out


def is_read_as(value, text):
    """What is read is the number to three digits, with a unit where it is bytes."""
    number, _, unit = text.replace(',', '').partition('\xa0')
    factor = {'': 1, 'B': 1, 'KiB': 2**10, 'MiB': 2**20, 'GiB': 2**30}[unit]
    return abs(float(number) * factor - value) <= 0.006 * abs(value) + 5e-4


def wrong_figures(shown, data):
    """Those that are not the file's, to the last digit, or are read as others."""
    file, wrong = flatten(data, '', {}), []
    for key, value, text in shown:
        want = file[key]
        if isinstance(want, (int, float)) and not isinstance(want, bool):
            if float(value) != want or not is_read_as(want, text):
                wrong.append((key, want, value, text))
        elif text != ('true' if want is True else 'false' if want is False else
                      '\u2013' if want is None else want):
            wrong.append((key, want, text))
    return wrong + [key for key in file if key not in {k for k, _, _ in shown}]


def keys(cases, browser, page, data):
    browser.open(page)
    blocks = sorted(data['step']['blocks']['rows'], key=lambda b: (b[4], b[2]))
    plot = "document.querySelector('[data-plot=step-0]')"
    said = f'return {plot}.parentElement.querySelector("output").textContent'
    browser.run(plot + '.focus()')
    read = []
    for _ in range(len(blocks) + 1):
        browser.press(Keys.ARROW_RIGHT)
        read.append(browser.run(said))
    cases.check('arrow_keys_read_each_box_in_order', [
        (b, text) for b, text in zip(blocks, read) if not text.startswith(b[0]) or
        f'({b[3]:,} B)' not in text] + ([] if read[-1] == read[-2] else [read[-2:]]))
    before = browser.run(f'return {plot}.toDataURL()')
    browser.press('+')
    zoomed = browser.run(f'return {plot}.toDataURL()')
    browser.press('0')
    cases.check('keys_zoom_in_and_out', [] if before != zoomed and
                browser.run(f'return {plot}.toDataURL()') == before else ['the picture is as before'])
    browser.run('document.querySelector("[data-plot=step-0]").closest("figure")'
                '.querySelector("[data-filter=saved]").click()')
    browser.run(plot + '.focus()')
    browser.press(*[Keys.ARROW_LEFT] * len(blocks))
    names = set()
    for _ in blocks:
        browser.press(Keys.ARROW_RIGHT)
        names.add(browser.run(said))
    cases.check('a_kind_that_is_filtered_out_is_passed_over', [n for n in names if 'saved' in n] or (
        [] if browser.run(f'return {plot}.toDataURL()') != before else ['it is still drawn']))
    browser.run("document.querySelector('[data-plot=losses]').focus()")
    browser.press(Keys.ARROW_RIGHT)
    loss = browser.run('return document.querySelector("[data-plot=losses]").parentElement'
                       '.querySelector("output").textContent')
    row = data['losses']['rows'][0]
    cases.check('a_chart_is_read_step_by_step', [] if loss.startswith(f'step {row[0]}: each batch ')
                and abs(float(loss.split()[4].strip(',')) - row[1]) < 1e-3 else [loss, row])


def readers(cases, browser, page):
    browser.open(page)
    tree = browser.tree()
    headings = [name for role, name in tree if role == 'heading']
    cases.check('a_screen_reader_finds_the_parts_by_headings', [] if
                headings[0].startswith('Training: ') and
                {'One step in memory', 'Loss'} <= set(headings) else headings)
    cases.check('and_a_name_for_each_picture', browser.run('''
        return [...document.querySelectorAll('canvas, svg[role=img]')].filter(
            e => !e.getAttribute('aria-label')).map(e => e.outerHTML)''') or (
                [] if browser.text('canvas') else ['there is none']))
    cases.check('and_tables_with_headings_of_rows_and_columns', [] if
                {'columnheader', 'rowheader'} <= {role for role, _ in tree} else ['there is none'])


def report(cases, browser, train, folder):
    text = folder / 'text'
    text.write_text(''.join(f'{i} times {i} are {i * i}.\n' for i in range(9000)))
    os.environ['ASHLAR_CONF'] = 'trace=20000'
    for name, hidden in ('a', 96), ('b', 64):
        subprocess.run([train, '--data', text, '--device', 'soft', '--layers', '2', '--hidden',
                        str(hidden), '--batch', '8', '--max-length', '64', '--steps', '60', '--quiet',
                        '--html', folder / f'{name}.html', '--json', folder / f'{name}.json',
                        '--snapshot', folder / 'memory.json'],
                       check=True, stdin=subprocess.DEVNULL)
    page, data = folder / 'a.html', json.loads((folder / 'a.json').read_text())
    layouts(cases, browser, page, 'a_training')
    keys(cases, browser, page, data)
    readers(cases, browser, page)
    browser.open(page)
    cases.check('all_figures_are_those_of_the_file', wrong_figures(browser.values('#all'), data))
    heads = dict((k, v) for k, v, _ in browser.values('.figures'))
    cases.check('the_headline_has_those_that_matter', [] if len(heads) >= 5 and
                float(heads['loss_last']) == data['loss_last'] else [heads])
    cases.check('the_table_has_each_buffer', [] if browser.run(
        "return document.querySelectorAll('#table-step-0 tbody tr').length") ==
                len(data['step']['blocks']['rows']) else ['more or less'])
    compare(cases, browser, folder, data)


def compare(cases, browser, folder, data):
    other = json.loads((folder / 'b.json').read_text())
    browser.open(folder / 'a.html')
    browser.add(folder / 'b.html')  # a page is a document, too
    shown = browser.values('#all')
    cases.check('two_trainings_are_set_side_by_side', [] if [float(v) for k, v, _ in shown
                if k == 'loss_last'] == [data['loss_last'], other['loss_last']] else [shown[:9]])
    browser.press(Keys.ESCAPE)
    ratio = next(t for t in browser.text('#all tr') if t.startswith('parameters'))
    cases.check('with_ratios', [] if abs(float(ratio.split()[-1]) -
        other['parameters'] / data['parameters']) < 1e-3 else [ratio])
    cases.check('and_two_pictures_of_a_step', [] if len(browser.text('[data-plot^=step-]')) == 2
                else ['others'])


def memory(cases, browser, viewer, folder):
    data = json.loads((folder / 'memory.json').read_text())
    blocks = [dict(zip(data['blocks']['columns'], row)) for row in data['blocks']['rows']]
    browser.open(viewer)
    browser.add(folder / 'memory.json')
    shown = {k: int(v) for k, v, _ in browser.values('.figures, #account')}
    live = [b for b in blocks if b['state'] == 'live']
    want = {'live_bytes': sum(b['requested'] for b in live), 'live_blocks': len(live),
            'reserved_bytes': sum(row[1] for row in data['segments']['rows'])}
    cases.check('memory_is_summed_as_it_is', [(k, want[k], shown) for k in want if want[k] != shown[k]])
    cases.check('memory_by_kind_is_all_of_it', [] if sum(v for k, v in shown.items() if k not in (
        'live_bytes', 'live_blocks', 'reserved_bytes', 'block_bytes')) == want['reserved_bytes']
        else [shown])
    allocs = sum(row[0] == 'alloc' for row in data['events']['rows'])
    cases.check('its_trace_has_every_block', [] if allocs > 100 and any(t.startswith(
        f'{allocs:,} blocks in {len(data["events"]["rows"]):,} events') for t in
        browser.text('section p')) else browser.text('section p'))
    live_over_time = '[data-plot=live-0]'
    browser.run(f"document.querySelector('{live_over_time}').focus()")
    browser.press(Keys.ARROW_LEFT)
    cases.check('live_bytes_begin_at_nothing', [] if 'live' in browser.run(
        f"return document.querySelector('{live_over_time}').parentElement.innerText") else ['nothing'])


def traces(cases, browser, viewer, train, folder):
    def event(cat, name, ts, dur, **args):
        return {'ph': 'X', 'cat': cat, 'name': name, 'pid': 0, 'tid': 7, 'ts': ts, 'dur': dur,
                'args': args}
    torch = {'traceEvents': [
        {'ph': 'M', 'name': 'process_name', 'pid': 0, 'args': {'name': 'python'}},
        event('cpu_op', 'aten::mul', 10, 900), event('cuda_runtime', 'cudaLaunchKernel', 100, 5),
        event('cuda_runtime', 'cudaMalloc', 106, 9), event('kernel', 'mul<float>', 107.5, 3, stream=7),
        event('kernel', 'add<float>', 109, 2, stream=13),
        event('gpu_memcpy', 'Memcpy DtoH', 111, 9, stream=7),
        event('cuda_sync', 'Context Sync', 10, 900, stream=-1)]}
    one = [event('kernel', 'mul<float>', 4e6, 3, stream=7)]
    for name, data in ('torch', torch), ('one', one):
        (folder / f'{name}.json').write_text(json.dumps(data))
    browser.open(viewer)
    browser.add(folder / 'torch.json')
    shown = {k: float(v) for k, v, _ in browser.values('.figures')}
    cases.check('a_trace_of_torch_profiler_is_read', [] if shown == {
        'launches': 3, 'copies': 1, 'total_us': 20, 'kernel_us': 5} else [shown])
    said = ("return document.querySelector('[data-plot=work-0]').parentElement"
            ".querySelector('output').textContent")
    browser.run("document.querySelector('[data-plot=work-0]').focus()")
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    read = [browser.run(said)]
    browser.press(Keys.ARROW_DOWN)
    read.append(browser.run(said))
    cases.check('arrow_keys_go_along_calls_and_to_their_work', [] if
                read[0].startswith('cudaMalloc \u00b7 other call, host 7, 6 to 15 ') and
                read[1].startswith('mul<float> \u00b7 kernel, stream 7, 7.5 to 10.5 ') else read)
    browser.add(folder / 'one.json')
    ends = browser.run("return ['work-0', 'work-1'].map(i => [...plots].find(p => p.id === i))"
                       ".flatMap(p => [p.view.x1, p.whole.x1])")
    cases.check('two_traces_are_shown_to_one_scale', [] if [
        v for k, v, _ in browser.values('.figures') if k == 'total_us'] == ['20', '3'] and
        ends == [20] * 4 else [ends])
    page, place = folder / 'traces.html', '<script id=data type="application/json">'
    inside = json.dumps([torch, {'traceEvents': one}]).replace('<', '\\u003c')
    page.write_text(viewer.read_text().replace(place, place + inside))
    layouts(cases, browser, page, 'a_trace')
    step_of_tiers(cases, browser, viewer, train, folder)


def step_of_tiers(cases, browser, viewer, train, folder):
    subprocess.run([train, '--data', folder / 'text', '--device', 'soft', '--layers', '2',
                    '--hidden', '64', '--batch', '8', '--max-length', '256', '--steps', '2',
                    '--quiet', '--memory', '6MiB', '--json', folder / 'report.json'],
                   check=True, stdin=subprocess.DEVNULL,
                   env=os.environ | {'ASHLAR_SOFT': f'time=on,trace={folder / "step.json"}'})
    tiers = json.loads((folder / 'report.json').read_text())['tiers']
    browser.open(viewer)
    browser.add(folder / 'step.json')
    most = browser.run('''
        const p = [...plots].find(p => p.id === 'tiers-0'), at = (l, x) => index(l.x, x);
        return p.lines.map(l => [l.name, Math.max(...l.y.slice(at(l, p.view.x0), at(l, p.view.x1)))])''')
    cases.check('the_tiers_of_the_last_step_are_shown', [] if tiers['host_bytes'] > 0 and most == [
        ['resident', tiers['resident_bytes']], ['host', tiers['host_bytes']]] and
        'In the last step: ' in ''.join(browser.text('section p')) else [most, tiers])


def logs(cases, browser, viewer, replay, folder):
    log, problem, plan = (folder / n for n in ('log.csv', 'problem.csv', 'plan.csv'))
    log.write_text('Thread,Time,Action,Pointer,Size,Stream\n1,0,allocate,0x1000,1000,0\n'
                   '1,1,allocate,0x3000,5000,0\n1,2,free,0x9000,300,0\n1,3,free,0x1000,1000,0\n')
    problem.write_text('id,lower,upper,size\na,0,5,1024\nb,5,9,2048\nc,2,7,512\n')
    subprocess.run([replay, '--pack', problem, '--out', plan, '--html', folder / 'plan.html'],
                   check=True, stdout=subprocess.DEVNULL)
    browser.open(viewer)
    browser.add(log)
    cases.check('a_log_has_its_peak_with_what_was_live_before', [] if
                browser.values('main p')[-1][1] == '6300'
                else browser.text('main p'))
    browser.add(plan)
    cases.check('a_plan_has_its_buffers', [] if any('3 buffers' in t for t in browser.text('main p'))
                else browser.text('main p'))
    browser.open(folder / 'plan.html')
    shown = dict((k, v) for k, v, _ in browser.values('.figures'))
    cases.check('a_page_of_a_plan_has_its_end', [] if shown.get('plan_bytes') == '2560' else [shown])
    wrong = folder / 'wrong.json'
    wrong.write_text('{')
    browser.add(wrong)
    cases.check('a_file_that_is_wrong_is_told', [] if any('wrong.json: ' in t for t in
                browser.text('[role=alert]')) else browser.text('#files'))


def benchmarks(cases, browser, results, folder):
    # README.md was made by the program that had the rules of losses before.
    readme = (pathlib.Path(results) / 'README.md').read_text()
    for name in ['machine'] + re.findall(r'^## .*\(`(\w+)`\)', readme, re.MULTILINE):
        for file in pathlib.Path(results).glob(f'{name}.*'):
            shutil.copy(file, folder)
    subprocess.run([sys.executable, BENCH_REPORT, folder], check=True, stdout=subprocess.DEVNULL)
    browser.open(folder / 'report.html')
    rows = json.loads((folder / 'alloc.json').read_text())
    rows = rows if isinstance(rows, list) else rows['rows']
    shown = {float(v) for v in browser.run(
        "return [...document.querySelectorAll('#group-alloc data')].map(d => d.getAttribute('value'))")}
    cases.check('each_pair_of_the_file_is_in_the_table', [
        r for r in rows if r['ns_pair'] and r['ns_pair'] not in shown] if len(shown) > 20 else [shown])
    told = [t for t in readme.splitlines() if t.startswith('- ')]
    losses = sorted(float(t.split('` has ')[1].split()[0]) for t in told if '` has ' in t)
    found = sorted(browser.run("return [...document.querySelectorAll('#losses data')].map("
                               "d => Number(d.getAttribute('value')))"))
    cases.check('each_loss_is_told', [] if len(losses) == len(found) and all(
        abs(a - b) <= 0.006 * b for a, b in zip(losses, found)) else [losses, found])
    missed = [t for t in told if 'target missed' in t]
    cases.check('and_each_target_that_was_missed', [] if missed and len(missed) == len(
        browser.text('#missed li')) else browser.text('#missed li'))
    layouts(cases, browser, folder / 'report.html', 'a_benchmark')
    browser.add(folder / 'alloc.json')
    cases.check('a_second_run_is_compared', [] if any(', 0 faster or smaller' in t for t in
                browser.text('main p')) else browser.text('main p'))


def main():
    train, bench, replay, results = sys.argv[1:]
    if not (shutil.which('chromium') and shutil.which('chromedriver')):
        print('1..0 # SKIP no chromium: the Debian packages are chromium and chromium-driver')
        return 0
    os.environ['PATH'] = '/usr/bin:' + os.environ['PATH']
    viewer = pathlib.Path(__file__).resolve().parents[1] / 'tools' / 'viewer.html'
    cases, browser = Cases(), Browser()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / 'results').mkdir()
        report(cases, browser, train, folder)
        memory(cases, browser, viewer, folder)
        logs(cases, browser, viewer, replay, folder)
        traces(cases, browser, viewer, train, folder)
        benchmarks(cases, browser, results, folder / 'results')
    cases.check('nothing_is_asked_of_a_network', [
        url for url in browser.requests() if not url.startswith(('file:', 'data:'))])
    cases.check('and_the_browser_has_no_complaint', browser.driver.get_log('browser'))
    browser.driver.quit()
    print(f'1..{cases.count}')
    return cases.failed != 0


if __name__ == '__main__':
    sys.exit(main())
