// A Chromium without window, spoken to over a pipe in its DevTools protocol: descriptors 3 and 4, messages of JSON that
// end with a zero byte. Nothing but Node.js is needed.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export class Chromium {
  constructor(program) {
    this.profile = mkdtempSync(join(tmpdir(), 'bitcube-chromium-'));
    // --no-sandbox: tests run as root in containers, on pages that they have made themselves.
    this.process = spawn(program, ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
      '--disable-extensions', '--disable-background-networking', '--no-first-run', '--hide-scrollbars',
      '--font-render-hinting=none', `--user-data-dir=${this.profile}`, '--remote-debugging-pipe', 'about:blank'],
      { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
    this.next = 1;
    this.waiting = new Map();
    this.listeners = [];
    this.failed = new Promise((_, reject) => {
      this.process.on('error', problem => reject(new Error(`${program}: ${problem.message}`)));
      this.process.on('exit', code => reject(new Error(`${program}: ended with code ${code}`)));
    });
    this.failed.catch(() => {});
    this.process.stdio[3].on('error', () => {});
    let rest = Buffer.alloc(0);
    this.process.stdio[4].on('data', data => {
      rest = Buffer.concat([rest, data]);
      for (let end = rest.indexOf(0); end >= 0; end = rest.indexOf(0)) {
        this.#receive(JSON.parse(rest.subarray(0, end).toString()));
        rest = rest.subarray(end + 1);
      }
    });
  }

  #receive(message) {
    if (message.id === undefined) {
      for (const listener of this.listeners) listener(message);
      return;
    }
    const { resolve, reject, method } = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (message.error) reject(new Error(`${method}: ${message.error.message}`));
    else resolve(message.result);
  }

  send(method, params = {}, sessionId = undefined) {
    const id = this.next++;
    const answer = new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject, method }));
    this.process.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + '\0');
    return Promise.race([answer, this.failed]);
  }

  /// A page: send(method, params) speaks to it, events are those that it has sent.
  async page() {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    const events = [];
    const listener = message => { if (message.sessionId === sessionId) events.push(message); };
    this.listeners.push(listener);
    return { events, send: (method, params) => this.send(method, params, sessionId),
      close: async () => {
        this.listeners.splice(this.listeners.indexOf(listener), 1);
        await this.send('Target.closeTarget', { targetId });
      } };
  }

  async close() {
    this.process.removeAllListeners('exit');
    const ended = once(this.process, 'exit');
    this.process.kill();
    await ended;
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }
}
