import { type BaseModelConfig, type Message, Model, type ModelStreamEvent } from '@strands-agents/sdk'

/** A model that says how many messages it was given. */
export class CountingModel extends Model<BaseModelConfig> {
  private config: BaseModelConfig = { modelId: 'counting' }

  override updateConfig(config: BaseModelConfig): void {
    this.config = { ...this.config, ...config }
  }

  override getConfig(): BaseModelConfig {
    return this.config
  }

  override async *stream(messages: Message[]): AsyncIterable<ModelStreamEvent> {
    yield { type: 'modelMessageStartEvent', role: 'assistant' }
    yield { type: 'modelContentBlockStartEvent' }
    yield { type: 'modelContentBlockDeltaEvent', delta: { type: 'textDelta', text: `I was given ${messages.length}.` } }
    yield { type: 'modelContentBlockStopEvent' }
    yield { type: 'modelMessageStopEvent', stopReason: 'endTurn' }
  }
}
