// Opens reports in Chromium, wide and narrow, light and dark, and looks for everything that a reader could stumble on.
// usage: node check.mjs CHROMIUM AXE.js FOLDER_FOR_SCREENSHOTS REPORT.html...
import { readFileSync, writeFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Chromium } from './chromium.mjs';

const [program, axePath, folder, ...reports] = process.argv.slice(2);
const axe = readFileSync(axePath, 'utf8');
const faults = [];

// ---- What runs in the page

/// Elements that HTML and XML parse alike; names that are unique; links that lead somewhere.
function structure(source) {
  const out = [];
  const xml = new DOMParser().parseFromString(source, 'application/xhtml+xml');
  const problem = xml.querySelector('parsererror');
  if (problem) out.push(`is no XML: ${problem.textContent.slice(0, 300)}`);
  const html = new DOMParser().parseFromString(source, 'text/html');
  const names = tree => [...tree.querySelectorAll('*')].map(element => element.localName).join(' ');
  if (!problem && names(xml) !== names(html)) out.push('HTML and XML parsers see different elements');
  if (document.compatMode !== 'CSS1Compat') out.push('quirks mode');
  if (document.scripts.length !== 0) out.push('has scripts');
  const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
  if (new Set(ids).size !== ids.length) out.push('ids are not unique');
  for (const link of document.querySelectorAll('a')) {
    if (!document.querySelector(link.getAttribute('href'))) out.push(`dead link ${link.href}`);
  }
  for (const figure of document.querySelectorAll('figure')) {
    const svg = figure.querySelector('svg');
    const named = svg.getAttribute('aria-labelledby').split(' ').every(id => document.getElementById(id)?.textContent);
    if (!named || svg.getAttribute('role') !== 'img') out.push(`figure ${figure.id}: has no name`);
    if (!figure.querySelector('figcaption')?.textContent) out.push(`figure ${figure.id}: has no caption`);
    if (!figure.querySelector('details table tbody tr')) out.push(`figure ${figure.id}: has no table`);
  }
  if (document.querySelectorAll('figure').length === 0) out.push('has no figures');
  return out;
}

/// What is too small, too wide, or too pale.
function appearance() {
  const out = [];
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide > 0) out.push(`scrolls sideways by ${wide} px`);
  for (const text of document.querySelectorAll('svg text')) {
    const svg = text.ownerSVGElement;
    const size = parseFloat(getComputedStyle(text).fontSize) * svg.getScreenCTM().a;
    if (size < 12) out.push(`text "${text.textContent}" has ${size.toFixed(1)} px`);
    const box = text.getBoundingClientRect();
    const frame = svg.getBoundingClientRect();
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1) {
      out.push(`figure ${svg.closest('figure').id}: text "${text.textContent}" is cut`);
    }
  }
  // Texts of a picture that cover each other.
  for (const svg of document.querySelectorAll('svg')) {
    const boxes = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
    boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
      const x = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const y = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (x > 1 && y > 5) out.push(`figure ${svg.closest('figure').id}: "${a}" and "${b}" overlap`);
    }));
  }
  // Names leave room for the numbers beside them.
  for (const region of document.querySelectorAll('.scroll')) {
    const name = region.querySelector('tbody th');
    const share = name.getBoundingClientRect().width / region.clientWidth;
    if (region.scrollWidth > region.clientWidth && share > 0.6) {
      out.push(`${region.getAttribute('aria-label')}: names take ${(100 * share).toFixed(0)} % of the width`);
    }
  }
  const style = getComputedStyle(document.documentElement);
  const luminance = name => {
    const hex = style.getPropertyValue(name).trim().replace(/^#(.)(.)(.)$/, '#$1$1$2$2$3$3');
    const part = i => {
      const c = parseInt(hex.slice(i, i + 2), 16) / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    };
    return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
  };
  const contrast = (a, b) => {
    const [high, low] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (high + 0.05) / (low + 0.05);
  };
  const least = [['--text', 4.5], ['--muted', 4.5], ['--link', 4.5], ['--bar', 3], ['--outer', 3],
    ...[...Array(8).keys()].map(i => [`--c${i}`, 3])];
  for (const [name, limit] of least) {
    const ratio = contrast(name, '--panel');
    if (!(ratio >= limit)) out.push(`${name} has a contrast of ${ratio.toFixed(2)}, less than ${limit}`);
  }
  // The heat scale goes one way in lightness, away from the page.
  const steps = [...Array(9).keys()].map(i => contrast(`--h${i}`, '--panel'));
  if (steps.some((step, i) => i > 0 && !(step > steps[i - 1]))) out.push(`heat colours are not in order: ${steps}`);
  return out;
}

/// Of every table the corner that axe-core sees: it takes milliseconds for a cell, and the other cells are alike.
async function violations() {
  document.querySelectorAll('tbody tr:nth-child(n+4), tr > :nth-child(n+9)').forEach(e => e.remove());
  const { violations: found } = await axe.run(document, { resultTypes: ['violations'] });
  return found.map(v => `axe: ${v.id}: ${v.help}: ${v.nodes.length} of ${v.nodes[0].html.slice(0, 200)}`);
}

// ---- Outside

async function evaluate(page, code, ...values) {
  const expression = typeof code === 'string' ? code : `(${code})(${values.map(v => JSON.stringify(v)).join(',')})`;
  const { result, exceptionDetails } =
    await page.send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
}

/// With the Tab key through the whole page: every stop is to be seen, and the first one skips the contents.
async function keyboard(page) {
  const out = [];
  const expected = await evaluate(page, () =>
    document.querySelectorAll('a, summary, section > .scroll').length);
  let different = 0;
  for (let i = 0; i <= expected; ++i) {
    await page.send('Input.dispatchKeyEvent', { type: 'keyDown', key: 'Tab', code: 'Tab', windowsVirtualKeyCode: 9 });
    await page.send('Input.dispatchKeyEvent', { type: 'keyUp', key: 'Tab', code: 'Tab', windowsVirtualKeyCode: 9 });
    const stop = await evaluate(page, () => {
      const e = document.activeElement;
      const stops = window.stops ??= new Set();
      stops.add(e);
      const box = e.getBoundingClientRect();
      return { name: e.localName + (e.className ? '.' + e.className : ''), text: e.textContent.slice(0, 40),
        different: stops.size, outline: getComputedStyle(e).outlineStyle,
        visible: box.bottom > 0 && box.top < innerHeight && box.right > 0 };
    });
    if (stop.name === 'body') break;
    if (i === 0 && stop.name !== 'a.skip') out.push(`the first stop of Tab is ${stop.name}`);
    if (!stop.visible) out.push(`${stop.name} "${stop.text}" has the focus and is not on the screen`);
    if (stop.outline === 'none') out.push(`${stop.name} "${stop.text}" has the focus and does not show it`);
    different = stop.different;
  }
  if (different !== expected) out.push(`Tab stops ${different} times, not ${expected}`);
  return out;
}

/// Opens a page as a screen of this width and scheme shows it.
async function open(chromium, url, { width, height, mobile, scheme }) {
  const page = await chromium.page();
  for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await page.send(`${domain}.enable`);
  await page.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile });
  await page.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
  await page.send('Page.navigate', { url });
  while (!page.events.some(e => e.method === 'Page.loadEventFired')) await new Promise(r => setTimeout(r, 5));
  return page;
}

// Widths decide on places, schemes on colours: two screens have both of each.
const screens = [
  { width: 1280, height: 900, mobile: false, scheme: 'light' },
  { width: 375, height: 812, mobile: true, scheme: 'dark' }];

const chromium = new Chromium(program);
try {
  for (const [number, report] of reports.entries()) {
    const url = pathToFileURL(resolve(report)).href;
    for (const [kind, screen] of screens.entries()) {
      const note = list => {
        for (const text of list) faults.push(`${basename(report)}, ${screen.width} px, ${screen.scheme}: ${text}`);
      };
      const page = await open(chromium, url, screen);
      const { cssContentSize: size } = await page.send('Page.getLayoutMetrics');
      const { data } = await page.send('Page.captureScreenshot', { captureBeyondViewport: true,
        clip: { x: 0, y: 0, width: screen.width, height: Math.min(size.height, 4000), scale: 1 } });
      const name = `${basename(report, '.html')}-${screen.width}-${screen.scheme}.png`;
      writeFileSync(join(folder, name), Buffer.from(data, 'base64'));

      note(await evaluate(page, appearance));
      if (!screen.mobile) {
        note(await evaluate(page, structure, readFileSync(report, 'utf8')));
        note(await keyboard(page));
      }
      await evaluate(page, () => document.querySelectorAll('details').forEach(d => { d.open = true; }));
      note((await evaluate(page, appearance)).filter(text => text.startsWith('scrolls') || text.startsWith('Table')));
      // axe-core is slow: it sees each page on one screen, and each screen.
      if (number % screens.length === kind) {
        await evaluate(page, axe);
        note(await evaluate(page, violations));
      }

      for (const e of page.events) {
        if (e.method === 'Runtime.consoleAPICalled') note([`console: ${JSON.stringify(e.params.args)}`]);
        if (e.method === 'Runtime.exceptionThrown') note([`exception: ${e.params.exceptionDetails.text}`]);
        if (e.method === 'Log.entryAdded') note([`log: ${e.params.entry.text}`]);
        if (e.method === 'Network.requestWillBeSent' && e.params.request.url !== url) note([`request: ${e.params.request.url}`]);
        if (e.method === 'Page.javascriptDialogOpening') note([`dialog: ${e.params.message}`]);
      }
      await page.close();
    }
  }
} finally {
  await chromium.close();
}
for (const fault of faults) console.error(fault);
console.log(`${reports.length} reports, ${faults.length} faults`);
process.exitCode = faults.length === 0 ? 0 : 1;
