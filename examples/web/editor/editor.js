// A shared text: CodeMirror on a Yjs document, which y-websocket keeps equal to a room of crdtcast.
//
// `?nodes=host:port,host:port` names the nodes: when one does not answer, the tab goes on with the next.

import { EditorState } from '@codemirror/state'
import { EditorView } from '@codemirror/view'
import { basicSetup } from 'codemirror'
import { yCollab } from 'y-codemirror.next'
import { WebsocketProvider } from 'y-websocket'
import * as Y from 'yjs'

const query = new URLSearchParams(location.search)
const room = query.get('room') ?? 'welcome'
const name = query.get('name') ?? 'Guest ' + Math.floor(Math.random() * 100)
const nodes = (query.get('nodes') ?? location.host).split(',')

const doc = new Y.Doc()
const text = doc.getText('text')
const provider = new WebsocketProvider(`ws://${nodes[0]}/rooms`, encodeURIComponent(room), doc, {
  disableBc: true // tabs of one browser, too, meet in the room only
})
const awareness = provider.awareness

const hue = doc.clientID % 360
awareness.setLocalStateField('user', {
  name,
  color: `hsl(${hue} 70% 40%)`,
  colorLight: `hsl(${hue} 70% 85%)`
})

// The provider dials the same node again; it is given the next one's address.
let dialled = 0
const nextNode = () => {
  dialled += 1
  provider.serverUrl = `ws://${nodes[dialled % nodes.length]}/rooms`
}
provider.on('connection-close', nextNode)

// The provider keeps the clocks of the others: it would not show them again before they say something new.
provider.on('status', ({ status }) => {
  if (status === 'disconnected') {
    for (const client of awareness.meta.keys()) if (client !== doc.clientID) awareness.meta.delete(client)
  }
})

const show = (id, content) => { document.getElementById(id).textContent = content }
provider.on('status', ({ status }) => show('status', `${status}: ${new URL(provider.url).host}`))
provider.on('closed', ({ reason }) => show('status', `refused: ${reason}`))
awareness.on('change', () => {
  const others = [...awareness.getStates()].filter(([client]) => client !== doc.clientID)
  show('others', others.map(([, state]) => state.user?.name).sort().join(', '))
})

const view = new EditorView({
  parent: document.getElementById('editor'),
  state: EditorState.create({
    doc: text.toString(),
    extensions: [basicSetup, EditorView.lineWrapping, yCollab(text, awareness)]
  })
})
view.focus()

window.crdtcast = { doc, provider, text, view } // to look around in the browser's console
