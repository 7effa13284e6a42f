"""Templated small talk in English and Chinese, written for this project.

Only the tokenizer is trained on it, so that it has merges which a later
conversational training can use: chat phrases, common Chinese characters,
digits, JSON and XML marks.
"""

import random

NAMES = "Anna Ben Clara David Emma Frank Grace Henry Iris Jack Li Wei Mary Nora Oscar".split()
CITIES = "Paris London Berlin Beijing Shanghai Tokyo Rome Madrid Vienna Oslo Cairo".split()
THINGS = "apples books pens cups chairs stones birds letters boats lamps coins keys".split()
TOPICS = ("the sea|a small garden|the history of bread|how to learn a language|the moon|rain in "
          "spring|a good breakfast|the price of tea|why the sky is blue|how a computer works|"
          "how to write a short letter|an old clock|a friendly dog").split("|")
TOOLS = "get_weather search_web read_file add_numbers get_time send_mail run_code".split()
KEYS = "city query path name date count unit text value language".split()

EN = [
    "Hello, {name}! How can I help you today?",
    "Can you tell me something about {topic}?",
    "Please explain {topic} in simple words.",
    "What is {a} plus {b}? The answer is {sum}.",
    "I have {a} {thing} and buy {b} more. How many {thing} do I have now? You have {sum} {thing}.",
    "Sure! Here is a short text about {topic}.",
    "I'm sorry, but I don't know the answer to that question.",
    "The user asks about {topic}. I should give a short and clear answer.",
    "What's the weather like in {city}? It is sunny in {city}, {a} degrees, with a light wind.",
    "Thank you very much! You're welcome, {name}.",
    "My name is {name} and I live in {city}. Nice to meet you!",
    "Okay, let me think step by step. First, we need {topic}. Second, we count the {thing}. "
    "So the answer is {a}.",
    "I need to call the function {tool} with the parameter {key}.",
    "Is it possible to travel from {city} to {city2} by train? Yes, it takes about {a} hours.",
    "Write a poem about {topic}. Which language do you speak? I can speak English and Chinese.",
    "1. {thing}\n2. {topic}\n3. {city}",
]

ZH = [
    "你好，{zname}！今天我能帮你做什么？", "请用简单的话说明一下{ztopic}。",
    "{a}加{b}等于多少？答案是{sum}。", "我有{a}个{zthing}，又买了{b}个，现在一共有{sum}个{zthing}。",
    "{zcity}今天的天气怎么样？{zcity}今天是晴天，气温{a}度，有小风。",
    "对不起，我不知道这个问题的答案。", "谢谢你！不客气，很高兴认识你。",
    "我叫{zname}，住在{zcity}，我是一名学生。", "用户想知道{ztopic}，我应该给出简短清楚的回答。",
    "好的，让我们一步一步来想。首先要看{ztopic}，然后再数{zthing}。所以答案是{a}。",
    "你会说中文吗？会的，我可以说中文和英文。", "请把这句话翻译成中文：我喜欢{ztopic}。",
    "从{zcity}到{zcity2}要多长时间？坐火车大约要{a}个小时。", "现在几点了？现在是{a}点{b}分。",
    "人工智能是计算机科学的一个重要部分，它研究如何让机器像人一样学习和思考。",
    "中国是世界上历史最长的国家之一，有很多美丽的地方。", "我需要调用工具来查询{ztopic}的信息。",
    "你可以给我写一首关于{ztopic}的诗吗？当然可以。", "这个方法很好，因为它比别的方法更快，也更容易理解。",
    "请问，{zthing}多少钱一个？{a}块钱一个。", "早上好！昨天晚上你睡得好吗？我觉得还不错。",
    "如果明天下雨，我们就在家里看书；如果不下雨，就去公园走走。",
    "他每天早上六点起床，吃完饭以后坐车去公司工作，下午五点回家。",
    "老师告诉学生：只要努力学习，将来一定会成功的。", "请先打开文件，读取内容，然后返回结果。",
    "水在零度时会变成冰，在一百度时会变成气。", "春天来了，花开了，树也绿了，孩子们在外面玩得很开心。",
]
ZNAMES = "小明 小红 小李 王老师 张先生 刘女士 安娜 大卫".split()
ZCITIES = "北京 上海 广州 深圳 南京 西安 东京 伦敦 巴黎 天津".split()
ZTHINGS = "苹果 书 笔 杯子 鸡蛋 面包 椅子 信 钥匙 石头 花 鱼 球".split()
ZTOPICS = ("大海 月亮 春天的雨 中国的历史 学习语言的方法 健康的早餐 茶的价格 天空为什么是蓝色的 "
           "电脑怎么工作 数学问题 音乐和电影 家人和朋友 城市的交通 环境保护 时间管理 新闻 "
           "经济发展 法律 身体健康 动物 植物 太阳和地球 火车 飞机 手机 网络 体育运动").split()
COMMON = ("的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年"
          "过发后作里用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心"
          "她本前开但因只从想实日军者意无力它与长把机十民第公此已工使情明性知全三又关点正业外将两高间由"
          "问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给世位次"
          "度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电"
          "数安少报才结反受目太量再感建务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马科"
          "司五基眼书非则听白却界达光放强即像难且权思王象完设式色路记南品住告类求据程北边死张该交规万取拉"
          "格望觉术领共确传师观清今切院让识候带导争运笔错误输入输出函数参数返回查询调用字符串列表请谢您吗呢吧")


def json_line(r):
    k1, k2 = r.sample(KEYS, 2)
    return (f'{{"name": "{r.choice(TOOLS)}", "arguments": {{"{k1}": "{r.choice(CITIES)}", '
            f'"{k2}": {r.randrange(100)}}}, "ok": {r.choice(["true", "false", "null"])}}}')


def xml_line(r):
    return (f"<function={r.choice(TOOLS)}>\n<parameter={r.choice(KEYS)}>\n{r.choice(CITIES)}\n"
            f"</parameter>\n</function>")


def sentence(r):
    a, b = r.randrange(2, 60), r.randrange(2, 40)
    kind = r.random()
    if kind < 0.06:
        return json_line(r)
    if kind < 0.10:
        return xml_line(r)
    if kind < 0.24:
        return "\n".join(r.choice(COMMON) for _ in range(96))
    template = r.choice(EN if kind < 0.5 else ZH)
    return template.format(
        name=r.choice(NAMES), topic=r.choice(TOPICS), thing=r.choice(THINGS), tool=r.choice(TOOLS),
        key=r.choice(KEYS), city=r.choice(CITIES), city2=r.choice(CITIES), a=a, b=b, sum=a + b,
        zname=r.choice(ZNAMES), ztopic=r.choice(ZTOPICS), zthing=r.choice(ZTHINGS),
        zcity=r.choice(ZCITIES), zcity2=r.choice(ZCITIES))


def turns(count, seed):
    """`count` user/assistant pairs as plain (question, answer) strings."""
    r = random.Random(seed)
    return [(sentence(r), sentence(r)) for _ in range(count)]
