"""What a browser makes of our pages: browser.py TRAIN BENCH RESULTS

Opens the page of `ashlar-train --html` and the charts of `ashlar-bench report` in a headless
Chromium, and asks what a reader gets: by day and by night, on a telephone, by the tab key alone, by
a screen reader. tests/check_page.py judges the page's text; here nothing is judged but what only
layout, styles and the accessibility tree show. Output: TAP.
"""

import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import PIL.Image
    import selenium.webdriver
    import selenium.webdriver.chrome.service
    from selenium.webdriver.common.keys import Keys
except ImportError as missing:
    print(f'1..0 # SKIP {missing}: the Debian packages are python3-selenium and python3-pil')
    sys.exit(0)

WIDTHS = {'telephone': 360, 'tablet': 768, 'desk': 1280}

# Each piece of text that can be seen: its words, its rectangle, its colour, what it stands on, its
# size. Rectangles are those of the text itself, not of the element around it.
TEXTS = '''
const found = [], walk = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
const solid = c => c && !/rgba\\(.*, 0\\)|transparent/.test(c);
while (walk.nextNode()) {
    const node = walk.currentNode, e = node.parentElement, s = getComputedStyle(e);
    if (!node.data.trim() || /^(style|title)$/i.test(e.tagName) || !e.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const r = range.getBoundingClientRect();
    if (r.width == 0) continue;
    let under = e, clip = null;
    while (under && !solid(getComputedStyle(under).backgroundColor)) under = under.parentElement;
    for (let o = e; o && !clip; o = o.parentElement)
        if (getComputedStyle(o).overflowX == 'hidden') clip = o.getBoundingClientRect();
    found.push({text: node.data.trim(), left: Math.max(r.left, clip ? clip.left : r.left),
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

    def lacks(self, selector, colours, least):
        """Those of the colours that fewer pixels of the painted element have than `least`."""
        png = self.driver.find_element('css selector', selector).screenshot_as_png
        image = PIL.Image.open(io.BytesIO(png)).convert('RGB')
        seen = image.getcolors(image.width * image.height)

        def pixels(colour): # thin lines fade into what they stand on
            return sum(n for n, at in seen
                       if max(abs(a - b) for a, b in zip(at, rgb(colour))) <= 16)

        return [(c, least) for c in colours if pixels(c) < least]


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


def layouts(cases, browser, page):
    for device, width in WIDTHS.items():
        for night in (False, True):
            browser.open(page, width, night)
            texts = browser.texts()
            name = f'{device}_by_{"night" if night else "day"}'
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
    cases.check('the_night_is_dark', [] if max(rgb(night)) < 64 and min(rgb(day)) > 192
                else [f'{day} and {night}'])


def keys(cases, browser, page, boxes):
    browser.open(page)
    reached, dumb = [], []
    for _ in range(boxes):
        browser.press(Keys.TAB)
        at = browser.run('''
            const e = document.activeElement, s = getComputedStyle(e);
            const l = getComputedStyle(e, '::after');
            return {name: e.getAttribute('aria-label'), outline: parseFloat(s.outlineWidth),
                shown: l.content, top: parseFloat(l.top), left: parseFloat(l.left),
                right: parseFloat(l.left) + parseFloat(l.width), bottom: parseFloat(l.top)
                    + parseFloat(l.height)}''')
        reached.append(at['name'])
        if not (at['outline'] >= 2 and at['name'] and at['name'] in at['shown'] and at['left'] >= 0
                and at['top'] >= 0 and at['right'] <= 1280 and at['bottom'] <= 800):
            dumb.append(at)
    names = browser.run(
        "return [...document.querySelectorAll('.box')].map(b => b.getAttribute('aria-label'))")
    cases.check('the_tab_key_reaches_each_box_in_order', [] if reached == names else [reached])
    cases.check('a_box_that_is_reached_says_what_it_is', dumb)
    browser.press(Keys.TAB, Keys.ENTER)
    cases.check('and_opens_the_table', [] if browser.run(
        "return document.activeElement.parentElement.open === true") else ['closed'])


def readers(cases, browser, page, results):
    browser.open(page)
    tree = browser.tree()
    said = [name for role, name in tree if role == 'StaticText']
    headings = [name for role, name in tree if role == 'heading']
    cases.check('a_screen_reader_finds_the_parts_by_headings', [] if
                headings[0] == 'Training report' and
                {'One step in memory', 'Loss'} <= set(headings) else headings)
    cases.check('and_a_name_for_each_picture', [
        (role, name) for role, name in tree if role == 'image' and not name] if 'image' in
                {role for role, _ in tree} else ['there is none'])
    figures = browser.run(
        "return [...document.querySelectorAll('.figures data')].map(d => d.textContent)")
    whole = f'{results["loss_last"]:.4f}' in figures and len(figures) == 5
    cases.check('and_the_headline_figures',
                [f for f in figures if f not in said] or ([] if whole else [figures]))
    cases.check('and_tables_with_headings_of_rows_and_columns', [] if
                {'columnheader', 'rowheader'} <= {role for role, _ in tree} else ['there is none'])


def pictures(cases, browser, page):
    """What is painted has the colours that the styles name, and enough of each to be seen."""
    for night in (False, True):
        browser.open(page, night=night)
        when = 'by_night' if night else 'by_day'
        thin = []
        for i in range(browser.run("return document.querySelectorAll('.plot svg').length")):
            strokes = browser.run('''
                document.querySelectorAll('.plot').forEach(p => p.id = '');
                const svg = document.querySelectorAll('.plot svg')[arguments[0]];
                svg.parentElement.id = 'seen';
                return [...svg.querySelectorAll('polyline')].map(l => getComputedStyle(l).stroke)
                ''', i)
            thin += browser.lacks('#seen', strokes, 20) if strokes else ['a chart without a line']
        cases.check('each_line_is_painted_' + when, thin)
        kinds = set(browser.run('''
            return [...document.querySelectorAll('.box')].map(
                b => getComputedStyle(b).backgroundColor)'''))
        cases.check('each_kind_of_box_is_painted_' + when,
                    browser.lacks('.step', kinds, 100) if len(kinds) >= 3 else [kinds])


def report(cases, browser, train, folder):
    text, page, figures = folder / 'text', folder / 'r.html', folder / 'r.json'
    text.write_text(''.join(f'{i} times {i} are {i * i}.\n' for i in range(9000)))
    subprocess.run([train, '--data', text, '--device', 'soft', '--layers', '2', '--hidden', '96',
                    '--batch', '8', '--max-length', '64', '--steps', '60', '--quiet',
                    '--html', page, '--json', figures], check=True, stdin=subprocess.DEVNULL)
    results = json.loads(figures.read_text())
    browser.open(page)
    boxes = browser.run("return document.querySelectorAll('.box').length")
    layouts(cases, browser, page)
    keys(cases, browser, page, boxes)
    readers(cases, browser, page, results)
    pictures(cases, browser, page)
    cases.check('nothing_is_asked_of_a_network', [
        url for url in browser.requests() if not url.startswith('file:')])
    cases.check('and_the_browser_has_no_complaint', browser.driver.get_log('browser'))


def charts(cases, browser, bench, results, folder):
    for file in pathlib.Path(results).glob('*.json'):
        shutil.copy(file, folder)
    subprocess.run([bench, 'report', folder], check=True, stdout=subprocess.DEVNULL)
    drawn = sorted(folder.glob('*.svg'))
    cases.check('there_is_a_chart_of_each_group', [] if len(drawn) >= 5 else drawn)
    for chart in drawn:
        browser.open(chart)
        texts = browser.texts()
        words = ' '.join(t['text'] for t in texts)
        frame = browser.run('''const r = document.documentElement.getBoundingClientRect();
            return [r.left, r.top, r.right, r.bottom]''')
        name = 'the_chart_of_' + chart.stem
        cases.check(name + '_says_which_way_is_better_and_on_what', [] if 'lower is better' in words
                    and 'device' in words else [words[:400]])
        cases.check(name + '_has_all_text_within', [
            t for t in texts if t['left'] < frame[0] - 0.5 or t['right'] > frame[2] + 0.5 or
            t['top'] < frame[1] - 0.5 or t['bottom'] > frame[3] + 0.5])
        cases.check(name + '_has_no_text_over_another', overlapping(texts))
        cases.check(name + '_has_text_that_can_be_read', [
            t for t in texts if contrast(t['color'], t['under']) < 4.5])


def main():
    train, bench, results = sys.argv[1:]
    if not (shutil.which('chromium') and shutil.which('chromedriver')):
        print('1..0 # SKIP no chromium: the Debian packages are chromium and chromium-driver')
        return 0
    os.environ['PATH'] = '/usr/bin:' + os.environ['PATH']
    cases, browser = Cases(), Browser()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / 'charts').mkdir()
        report(cases, browser, train, folder)
        charts(cases, browser, bench, results, folder / 'charts')
    browser.driver.quit()
    print(f'1..{cases.count}')
    return cases.failed != 0


if __name__ == '__main__':
    sys.exit(main())
